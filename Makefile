# make demo       serve the embedded pair on this machine and prove it
# make down       stop it
# make test       lint, unit, engine, image, smoke: what CI runs
# make test-full  the same with the whole engine matrix
# make test-gpu   kernels and engine on a machine with a GPU
# make status     what every host of the inventory serves
# make testbed    the roll-out on three real hosts in containers
# make lint
export CACHE_DIR ?= $(CURDIR)/.cache
VERSIONS := 0.5.16 0.5.23
# The stand-ins let SGLang be imported on a machine without CUDA; spinning threads would starve the others.
UNIT := OMP_WAIT_POLICY=PASSIVE PYTHONPATH=docker/cpu $(CACHE_DIR)/engine-0.5.16/bin/python
# Two files at a time, each with its servers; a start hardly uses a second thread.
PARALLEL := -n 2 --dist loadfile

.PHONY: demo down status testbed test test-full test-gpu lint unit engine image-test engine-env model tools patches

demo:
	@scripts/demo.sh

down:
	@docker compose down

test: lint unit engine image-test

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

test-gpu:
	@scripts/test-gpu.sh

status: tools
	@$(CACHE_DIR)/tools/bin/ansible-playbook ansible/status.yml >$(CACHE_DIR)/status.log || { cat $(CACHE_DIR)/status.log; exit 1; }
	@cat $(CACHE_DIR)/status.txt

testbed: tools
	@$(CACHE_DIR)/tools/bin/python -m pytest tests/testbed -m testbed -q

engine-env:
	@for version in $(VERSIONS); do scripts/engine-env.sh $$version || exit 1; done

model: engine-env
	@$(UNIT) -m models fetch smollm2-135m

tools:
	@scripts/tools.sh

# For maintainers: rewrite the manifest from an unpatched SGLang in SITE.
patches:
	python3 patches/apply.py --site $(SITE) --refresh
