"""The page about Kimi K2.6 says what its script computes, and the script computes what its shapes say."""

from pathlib import Path

import pytest

from scripts import kimi_on_paper as paper

PAGE = (Path(__file__).parents[2] / "patches" / "KIMI.md").read_text()
H200, B200, _ = paper.CARDS


@pytest.mark.parametrize("name", paper.render())
def test_the_page_holds_each_table(name):
    assert paper.render()[name] in PAGE


def test_the_weights_are_those_of_the_published_checkpoint():
    # 595 GB on one GPU; the checkpoint of int4 experts is published with 594 GB.
    assert paper.weights(paper.KIMI, 1) == pytest.approx(594e9, rel=0.01)


def test_ranks_share_the_weights_but_not_the_latent():
    assert paper.weights(paper.KIMI, 8) < paper.weights(paper.KIMI, 1) / 7
    assert paper.target_kv(paper.KIMI) == 61 * 576 * 2
    assert paper.drafter_kv(paper.Drafter(kv_heads=64), 8) == 8 * paper.drafter_kv(paper.Drafter(kv_heads=8), 8)


@pytest.mark.parametrize(("card", "width", "reads"), [(H200, 32, 1), (H200, 33, 2), (B200, 16, 1), (B200, 17, 2)])
def test_a_tile_is_paid_whole(card, width, reads):
    assert paper.prefix_reads(width, card.rows) == reads


def test_the_prefix_is_read_once_per_head_and_tile():
    assert paper.verify_ms(33, 65536, H200) == pytest.approx(2 * 8 * paper.grouped_ms(65536, H200))
    # 8 heads x 2 tiles x 64k tokens x 70,272 bytes at 4.8 TB/s.
    assert paper.verify_ms(33, 65536, H200) == pytest.approx(16 * 65536 * 70272 / 4.8e12 * 1e3)
