# make demo       serve the embedded pair on this machine and prove it
# make down       stop it
# make test       lint, unit, engine, image, smoke, fleet: what CI runs
# make test-full  the same with the whole engine matrix
# make gpu-image  build the image of a generation of GPUs and test it without one; GENERATION=sm120 for another
# make test-gpu   kernels and engine on a machine with a GPU
# make bench      the matrix of the benchmarks and its report; BENCH=... for other flags than the embedded pair's
# make tune       pick the settings of a workload by measuring; TUNE=... for other flags
# make status     what every host of the inventory serves
# make bundle     everything that a deployment needs in one signed folder, for hosts without a network; BUNDLE=--key FILE
# make update     lock the dependencies anew; SGLANG=0.5.24 tries the patch series on that version
# make licences   list the licence of every locked package
# make fleet      the roll-out on three real hosts in containers, what CI runs of it
# make testbed    all of it
# make support-bundle what a bug report needs of every host, without secrets
# make upgrade-notes FROM=REVISION  what an upgrade from there asks for
# make lint
export CACHE_DIR ?= $(CURDIR)/.cache
VERSIONS := 0.5.16 0.5.23
# The stand-ins let SGLang be imported on a machine without CUDA; spinning threads would starve the others.
UNIT := OMP_WAIT_POLICY=PASSIVE PYTHONPATH=docker/cpu $(CACHE_DIR)/engine-0.5.16/bin/python
# Two files at a time, each with its servers; a start hardly uses a second thread.
PARALLEL := -n 2 --dist loadfile

.PHONY: demo down status support-bundle upgrade-notes bundle update licences fleet testbed test test-full gpu-image test-gpu bench tune lint unit engine image-test engine-env \
	model tools wheels patches

demo:
	@scripts/demo.sh

down:
	@docker compose down

test: lint unit engine image-test fleet

test-full: export ENGINE_FULL = 1
test-full: test

lint: tools
	@scripts/lint.sh

unit: engine-env tools
	$(UNIT) -m pytest tests/unit -m "not engine and not slow" -q $(PARALLEL)

engine: engine-env model
	OMP_NUM_THREADS=1 $(UNIT) -m pytest tests/unit tests/engine -m "engine or slow" -q $(PARALLEL)

image-test: model
	@scripts/image-test.sh

GENERATION ?= sm90

gpu-image: tools
	@scripts/docker-engine.sh
	GENERATION=$(GENERATION) $(CACHE_DIR)/tools/bin/python -m pytest tests/image/test_gpu_image.py -q

test-gpu:
	@scripts/test-gpu.sh

BENCH ?= --device cpu --arms ar,chain,tree:15:8 --contexts 60,256 --concurrency 1,2 --samples 3 --max-new-tokens 32
TUNE ?= --device cpu --arms ar,chain,tree:7:4,tree:15:8 --workload latency:60:1 --samples 10 --max-new-tokens 32
PAIR := $(CACHE_DIR)/models/smollm2-135m

bench: engine-env model
	$(UNIT) -m bench.matrix --target $(PAIR)/target --drafter $(PAIR)/drafter --run $(CACHE_DIR)/bench/matrix $(BENCH)
	$(UNIT) -m bench.report $(CACHE_DIR)/bench/matrix --output $(CACHE_DIR)/bench/page.html

tune: engine-env model
	$(UNIT) -m bench.tune --target $(PAIR)/target --drafter $(PAIR)/drafter --run $(CACHE_DIR)/bench/tune \
		--profile $(CACHE_DIR)/bench/profile.yaml $(TUNE)

status: tools
	@$(CACHE_DIR)/tools/bin/ansible-playbook ansible/status.yml >$(CACHE_DIR)/status.log || { cat $(CACHE_DIR)/status.log; exit 1; }
	@cat $(CACHE_DIR)/status.txt

BUNDLE ?= --key $(HOME)/.ssh/id_ed25519

bundle: wheels
	@scripts/docker-engine.sh
	@$(CACHE_DIR)/tools/bin/python -m bundle $(BUNDLE)

update: tools
	@$(CACHE_DIR)/tools/bin/python scripts/update.py $(if $(SGLANG),--sglang $(SGLANG)) $(if $(SERIES),--series $(SERIES))

licences: tools
	@$(CACHE_DIR)/tools/bin/python scripts/licences.py

fleet: wheels
	@scripts/docker-engine.sh
	@$(CACHE_DIR)/tools/bin/python -m pytest tests/testbed -m "testbed and not slow" -q

testbed: wheels
	@scripts/docker-engine.sh
	@$(CACHE_DIR)/tools/bin/python -m pytest tests/testbed -m testbed -q

support-bundle: tools
	@$(CACHE_DIR)/tools/bin/ansible-playbook ansible/support_bundle.yml >$(CACHE_DIR)/support.log || { cat $(CACHE_DIR)/support.log; exit 1; }
	@echo "support-bundle: look through the files in $(CACHE_DIR)/support before you send them"

upgrade-notes: tools
	@$(CACHE_DIR)/tools/bin/python scripts/upgrade_notes.py $(FROM)

engine-env:
	@for version in $(VERSIONS); do scripts/engine-env.sh $$version || exit 1; done

model: engine-env
	@$(UNIT) -m models fetch smollm2-135m

tools:
	@scripts/tools.sh

# What the images are made of.
wheels: tools
	@$(CACHE_DIR)/tools/bin/python scripts/wheels.py --sglang 0.5.16 --dest $(CACHE_DIR)/wheels

# For maintainers: rewrite the manifest from an unpatched SGLang in SITE.
patches:
	python3 patches/apply.py --site $(SITE) --refresh
