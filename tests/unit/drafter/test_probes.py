"""Test drafters propose what they say, on paths that move, and refuse bad files."""

import json
from pathlib import Path

import pytest

from services.contract.errors import InvalidField
from services.contract.limits import MAX_DEPTH
from services.contract.tree import NodeSource
from services.drafter.draft import Draft
from services.drafter.probes import MAX_FILE_BYTES, Probe, parse_probe, remember_truth
from services.drafter.shape import parse_shape

VOCAB = 50
TRUTH = [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
HYDRA = parse_shape("hydra27")


def accepted(draft: Draft, truth: list[int]) -> list[int]:
    """Return the nodes that target-only decoding of `truth` would accept."""
    nodes, node = [], 0
    for token in truth:
        matching = [child for child in draft.children(node) if draft.tokens[child] == token]
        if not matching:
            break
        node = matching[0]
        nodes.append(node)
    return nodes


def probe(text: str) -> Probe:
    """Return the named probe."""
    found = parse_probe(text, VOCAB)
    assert found is not None
    return found


@pytest.fixture
def truth_file(tmp_path: Path) -> Path:
    """Write the truth in the form that `lumotree generate --json` prints."""
    path = tmp_path / "truth.json"
    path.write_text(json.dumps({"token_ids": TRUTH, "text": "x"}))
    return path


def test_mtp_is_no_probe() -> None:
    assert parse_probe("mtp", VOCAB) is None


def test_oracle_is_accepted_to_its_leaf_on_moving_paths(truth_file: Path) -> None:
    oracle = probe(f"oracle:{truth_file}")
    paths = [accepted(oracle.draft(HYDRA, 3, cycle, 0), TRUTH) for cycle in range(11)]
    ends = {path[-1] for path in paths}
    assert ends == set(range(28)) - set(HYDRA.parents)
    assert max(map(len, paths)) == 11


def test_oracle_starts_after_what_was_emitted(truth_file: Path) -> None:
    oracle = probe(f"oracle:{truth_file}")
    chain = parse_shape("chain-4")
    assert oracle.draft(chain, 3, 5, 6).tokens == [3, *TRUTH[6:10]]


def test_oracle_past_its_end_is_wrong_but_whole(truth_file: Path) -> None:
    draft = probe(f"oracle:{truth_file}").draft(parse_shape("chain-4"), 3, 5, 12)
    assert draft.num_nodes == 5
    assert draft.tokens[1:3] == TRUTH[12:]


@pytest.mark.parametrize("depth", [0, 1, 3, MAX_DEPTH])
def test_adversarial_is_right_to_its_depth_only(truth_file: Path, depth: int) -> None:
    wrong = probe(f"adversarial:{depth}:{truth_file}")
    for cycle in range(30):
        draft = wrong.draft(parse_shape("chain-6"), 3, cycle, 0)
        assert len(accepted(draft, TRUTH)) == min(depth, 6)


def test_random_tokens_change_with_the_cycle() -> None:
    random = probe("random")
    first, second = (random.draft(HYDRA, 3, cycle, 0) for cycle in (0, 1))
    assert first.tokens != second.tokens
    assert first.tokens == random.draft(HYDRA, 3, 0, 9).tokens
    assert set(first.sources[1:]) == {NodeSource.TEST}
    assert all(0 <= token < VOCAB for token in first.tokens)


def test_probes_draw_a_fixed_tree_where_the_shape_is_adaptive() -> None:
    assert probe("random").draft(parse_shape("adaptive"), 3, 0, 0).parents == list(HYDRA.parents)


def test_replay_gives_recorded_trees_then_the_root(tmp_path: Path) -> None:
    path = tmp_path / "trees.jsonl"
    trees = [{"parents": [-1, 0, 0], "token_ids": [1, 4, 5]}, {"parents": [-1], "token_ids": [1]}]
    path.write_text("\n".join(map(json.dumps, trees)))
    replay = probe(f"replay:{path}")
    assert replay.draft(HYDRA, 9, 0, 0).tokens == [9, 4, 5]
    assert replay.draft(HYDRA, 9, 1, 0).tokens == [9]
    assert replay.draft(HYDRA, 9, 2, 0).tokens == [9]


def test_a_truth_may_be_remembered_in_the_process() -> None:
    remember_truth("mine", [5, 6])
    assert probe("oracle:@mine").draft(parse_shape("chain-2"), 3, 0, 0).tokens == [3, 5, 6]
    with pytest.raises(InvalidField):
        parse_probe("oracle:@other", VOCAB)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mtp2",
        "oracle",
        "oracle:",
        "adversarial:3",
        "adversarial:16:x",
        "adversarial:-1:x",
        "replay:",
    ],
)
def test_unknown_drafters_are_refused(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_probe(text, VOCAB)
    assert caught.value.field == "drafter"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"7", b"[7, 50]", b"[7, -1]", b"[true]", b"\xff", b"{}"]
)
def test_bad_truth_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "truth.json"
    path.write_bytes(data)
    with pytest.raises(InvalidField):
        parse_probe(f"oracle:{path}", VOCAB)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        '{"parents": [-1, 0], "token_ids": [1]}',
        '{"parents": [-1, 1], "token_ids": [1, 2]}',
        '{"parents": [-1], "token_ids": [50]}',
        '{"token_ids": [1]}',
        "{",
    ],
)
def test_bad_replay_lines_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trees.jsonl"
    path.write_text(line)
    with pytest.raises(InvalidField):
        parse_probe(f"replay:{path}", VOCAB)


def test_missing_and_oversized_files_are_refused(tmp_path: Path) -> None:
    big = tmp_path / "big.json"
    with big.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    for path in (tmp_path / "missing", big):
        with pytest.raises(InvalidField) as caught:
            parse_probe(f"oracle:{path}", VOCAB)
        assert str(path) not in str(caught.value)
