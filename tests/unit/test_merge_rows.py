"""Rows that stand together before they are merged: Arrow columns in memory of their own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from distsort import blocks
from distsort.blocks import in_one_piece
from distsort.local import Run, Spec
from distsort.merge import merge_runs
from distsort.order import make_order

COLUMNS = {
    "text": pd.array(["x", None, "z"], dtype="str"),
    "nullable": pd.array(["x", None, "z"], dtype="string[pyarrow]"),
    "bytes": pd.array([b"a", b"b", b"c"], dtype=pd.ArrowDtype(pa.binary(1))),
    "lists": pd.array([[1], None, [2, 3]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    "numbers": np.arange(3),
}


def chunks_of(frame, name):
    return frame[name].array.__arrow_array__().chunks


def test_chunks_become_one_and_nothing_else_changes():
    frame = blocks.concat([pd.DataFrame(COLUMNS)] * 3)
    frame.attrs["unit"] = "m"
    whole = in_one_piece(frame)
    pd.testing.assert_frame_equal(whole, frame)
    assert whole.attrs == {"unit": "m"}
    for name in ("text", "nullable", "bytes", "lists"):
        assert (len(chunks_of(frame, name)), len(chunks_of(whole, name))) == (3, 1)
    assert in_one_piece(np.arange(3)).tolist() == [0, 1, 2]
    assert in_one_piece(frame["text"]) is not None


def test_columns_of_one_name_and_frames_of_no_rows():
    twice = pd.DataFrame([["a", "b"]] * 2, columns=["k", "k"], dtype="string[pyarrow]")
    pd.testing.assert_frame_equal(in_one_piece(twice), twice)
    pd.testing.assert_frame_equal(in_one_piece(twice.iloc[:0]), twice.iloc[:0])


@pytest.mark.parametrize("name", ["text", "bytes"])
def test_what_is_cut_out_does_not_keep_the_rest(name):
    frame = pd.DataFrame({name: pd.concat([pd.Series(COLUMNS[name])] * 10_000, ignore_index=True)})
    (chunk,) = chunks_of(in_one_piece(frame.iloc[5:8]), name)
    assert chunk.get_total_buffer_size() < 200
    assert chunk.offset == 0


def test_slices_go_once_their_rows_stand_together():
    frame = pd.DataFrame({"k": [1, 3], "v": ["a", "b"]})
    pieces = [Run(frame), Run(frame.iloc[:0]), Run(frame)]
    merged = merge_runs(pieces, Spec(make_order("k"), "rows", ignore_index=True))
    assert merged.v.tolist() == ["a", "a", "b", "b"]
    assert pieces == []
