"""Which GPU of the machine is which of TensorFlow's."""

from __future__ import annotations

import pytest

from tfdiag.collect.visible import Listed, tensorflow_names, visible_gpus
from tfdiag.model.quantity import Missing

ALIKE = (Listed("GPU-aa", "A100"), Listed("GPU-ab", "A100"), Listed("GPU-b", "A100"))
OTHERS = (Listed("GPU-aa", "T4"), Listed("GPU-ab", "A100"))
CUT = (Listed("GPU-a", "A100", ("MIG-1", "MIG-2")), Listed("GPU-b", "A100"))


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ("GPU-aa", "GPU-ab", "GPU-b")),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1", ("GPU-ab",)),
        ("2,0", ("GPU-b", "GPU-aa")),
        (" 2 , 0 ", ("GPU-b", "GPU-aa")),
        ("0,7,1", ("GPU-aa",)),
        ("0,-1,1", ("GPU-aa",)),
        ("7,0", ()),
        ("1,1", ()),
        ("GPU-b,0", ("GPU-b", "GPU-aa")),
        ("gpu-AB", ("GPU-ab",)),
        ("GPU-a", ()),
        ("GPU-c,0", ()),
    ],
)
def test_cuda_sees_what_the_variable_names(visible: str | None, expected: tuple[str, ...]):
    """By number, by UUID or its beginning; what follows a name that doesn't exist is ignored."""
    assert visible_gpus(ALIKE, visible, None) == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ("GPU-b",)),
        ("0", ("MIG-1",)),
        ("1", ("GPU-b",)),
        ("MIG-2", ("MIG-2",)),
        ("MIG-2,MIG-1", ("MIG-2",)),
        ("MIG-3", ()),
        ("1,0", ("GPU-b",)),
    ],
)
def test_a_process_uses_one_slice(visible: str | None, expected: tuple[str, ...]):
    """A partitioned GPU stands for its first slice."""
    assert visible_gpus(CUT, visible, None) == expected


def test_a_machine_of_slices_gives_the_first():
    """Without a whole GPU there is one slice to see; by its older name too."""
    assert visible_gpus(CUT[:1], None, None) == ("MIG-1",)
    one = (Listed("GPU-a", "A100", ("MIG-1",)),)
    assert visible_gpus(one, "MIG-GPU-a/1/0", None) == ("MIG-1",)
    assert visible_gpus(one, "MIG-GPU-b/1/0", None) == ()


@pytest.mark.parametrize("visible", [None, "0"])
def test_different_gpus_are_numbered_by_speed(visible: str | None):
    """Which is the fastest is not known, unless the order is that of the bus, or a UUID says it."""
    assert isinstance(visible_gpus(OTHERS, visible, None), Missing)
    assert visible_gpus(OTHERS, "1", "PCI_BUS_ID") == ("GPU-ab",)
    assert visible_gpus(OTHERS, "GPU-ab", None) == ("GPU-ab",)


def test_names_follow_the_order():
    """TensorFlow's first is the first that CUDA shows it."""
    seen = [("GPU:0", "A100"), ("GPU:1", "A100")]
    assert tensorflow_names(ALIKE, ("GPU-b", "GPU-aa"), seen) == {"GPU-b": "GPU:0", "GPU-aa": "GPU:1"}
    assert tensorflow_names(ALIKE, (), []) == {}


def test_names_by_description_where_the_order_is_not_known():
    """Different GPUs are told apart by what TensorFlow calls them; GPUs that are alike are not."""
    unknown = Missing("by speed")
    assert tensorflow_names(OTHERS, unknown, [("GPU:0", "A100"), ("GPU:1", "T4")]) == {
        "GPU-ab": "GPU:0",
        "GPU-aa": "GPU:1",
    }
    assert tensorflow_names(OTHERS, unknown, [("GPU:0", "")]) == unknown
    few = tensorflow_names(ALIKE, ("GPU-aa", "GPU-ab"), [("GPU:0", "A100")])
    assert isinstance(few, Missing)
    assert "1 of the 2" in few.reason
