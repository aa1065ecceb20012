"""Each Triton kernel compiles for the GPU generations of the kit, on a machine without one."""

from __future__ import annotations

import importlib

import pytest

CAPABILITIES = [80, 89, 90, 100, 120]
# kernel -> (module, pointers to the element types, plain arguments, constants, warps)
KERNELS = {
    "_build_kernel": (
        "build",
        {"log_prob_ptr": "fp32", "token_id_ptr": "i64", "root_ptr": "i64", "token_ptr": "i64"}
        | {"parent_ptr": "i32", "depth_ptr": "i32", "score_ptr": "fp32"},
        {},
        {"L": 15, "K": 8, "W": 64, "N": 64},
        1,
    ),
    "_finalize_kernel": (
        "finalize",
        {"parent_ptr": "i32", "depth_ptr": "i32", "seq_len_ptr": "i64", "position_ptr": "i64"} | {"ancestor_ptr": "u8"},
        {},
        {"W": 17, "N": 32, "ROWS": 16},
        4,
    ),
    "_mask_kernel": (
        "mask",
        {"mask_ptr": "u8", "indptr_ptr": "i64", "seq_len_ptr": "i64", "ancestor_ptr": "u8"},
        {},
        {"W": 17, "N": 32, "ROWS": 8, "FILL_PREFIX": True, "PREFIX_BLOCK": 512},
        4,
    ),
    "_accept_kernel": (
        "accept",
        {"token_ptr": "i64", "parent_ptr": "i32", "target_ptr": "i64", "seq_len_ptr": "i64"}
        | {"index_ptr": "i32", "commit_len_ptr": "i32", "bonus_ptr": "i64", "out_token_ptr": "i64"}
        | {"new_seq_len_ptr": "i64"},
        {},
        {"W": 64, "N": 64, "D": 16, "D_LANES": 32},
        1,
    ),
    "_move_kernel": (
        "move",
        {"tile_ptr": "i64", "slot_ptr": "i64", "index_ptr": "i32", "commit_len_ptr": "i32"},
        {"slot_stride": "i32", "index_stride": "i32"},
        {"UNIT": "int64", "COLUMNS": 512},
        4,
    ),
}


def compiled(name: str, capability: int, **other_constants):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, pointers, scalars, constants, warps = KERNELS[name]
    kernel = getattr(importlib.import_module(f"sglang_ddtree.ops.triton.{module}"), name)
    constants = constants | other_constants
    if "UNIT" in constants:
        constants = constants | {"UNIT": getattr(triton.language, constants["UNIT"])}
    signature = {key: f"*{value}" for key, value in pointers.items()} | scalars
    signature |= dict.fromkeys(constants, "constexpr")
    place = {key: (kernel.arg_names.index(key),) for key in signature}
    aligned = {place[key]: [["tt.divisibility", 16]] for key in pointers}
    source = ASTSource(kernel, signature, {place[k]: v for k, v in constants.items()}, aligned)
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={"num_warps": warps}).asm


@pytest.fixture(autouse=True)
def no_kernel_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", KERNELS)
def test_compiles(name, capability):
    assert compiled(name, capability)["cubin"]


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "columns"), [("int64", 512), ("int64", 32), ("int16", 2048), ("int8", 4096)])
def test_a_thread_of_the_mover_stores_the_columns_it_loaded(unit, columns):
    # A change of layout between load and store would hand columns to another thread, in no order.
    code = compiled("_move_kernel", 90, UNIT=unit, COLUMNS=columns)["ttgir"]
    assert "tt.store" in code
    assert "convert_layout" not in code


@pytest.mark.slow
@pytest.mark.parametrize("width", [17, 32, 64, 128])
def test_the_builder_reduces_in_hardware_and_stays_in_registers(width):
    code = compiled("_build_kernel", 90, W=width, N=max(32, 1 << (width - 1).bit_length()))["ptx"]
    assert code.count("redux.sync.max.s32") == 3  # one for the table, two in each step
    assert ".local" not in code
