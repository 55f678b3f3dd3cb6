"""Streams: fixed sequences that can be read anywhere, by any grouping of rows."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualanchor.core.streams import GeneratorSource, Kind, Purpose, Streams, shared


def noise(replications=(0, 1, 2), seed=7, dimension=3, **options):
    return Streams(seed, np.asarray(replications), Purpose.NOISE, dimension, **options)


def test_the_numbers_of_a_seed_never_change():
    """Golden: if this fails, every published result changes. Made once by printing these very expressions."""
    streams = noise((0, 3))
    expected = [
        [0.14226339921366232, 0.006473112439361945, -0.9490898138096356],
        [0.048286975928632604, -0.1804990305159875, -0.7854684260010213],
    ]
    np.testing.assert_allclose(streams.normals(), expected, rtol=1e-12)
    expected = [[0.6450104197483648, 0.24952656321021938], [0.8918950780927083, 0.6711236913641974]]
    np.testing.assert_array_equal(streams.uniforms(2, 2), expected)
    np.testing.assert_array_equal(streams.integers(10, 5), [[9, 6, 7, 2, 7], [4, 2, 4, 0, 8]])
    drawn = [rng.integers(0, 1000, 3).tolist() for rng in streams.generators()]
    assert drawn == [[22, 746, 761], [848, 675, 148]]
    assert streams.sources[0].generator(5, 2).integers(0, 1000, 4).tolist() == [907, 254, 72, 525]
    single = noise((0, 3), dtype=np.float32).normals()
    assert single.dtype == np.float32
    np.testing.assert_allclose(single[0], [1.5728840827941895, -1.4800453186035156, 0.7941709160804749], rtol=1e-6)


def test_the_numbers_of_purposes_and_kinds_never_change():
    assert [purpose.value for purpose in Purpose] == list(range(11))
    names = ["INSTANCE", "START", "NOISE", "COIN", "PILOT", "CERTIFICATE", "SELECTION", "FIRST_BATCH", "START_RESIDUAL"]
    names += ["GAP", "INFERENCE"]
    assert [purpose.name for purpose in Purpose] == names
    assert [(kind.name, kind.value) for kind in Kind] == [
        ("NORMALS", 0),
        ("INTEGERS", 1),
        ("UNIFORMS", 2),
        ("GENERATORS", 3),
    ]


def test_the_same_seed_gives_the_same_numbers():
    one, other = noise(), noise()
    for _ in range(5):
        np.testing.assert_array_equal(one.normals(), other.normals())
        np.testing.assert_array_equal(one.integers(9, 4), other.integers(9, 4))
    np.testing.assert_array_equal(one.uniforms(5, 3), other.uniforms(5, 3))


def test_seeds_purposes_replications_and_kinds_differ():
    firsts = [noise(seed=seed).normals() for seed in (0, 1)]
    firsts += [Streams(0, np.arange(3), purpose, 3).normals() for purpose in Purpose if purpose is not Purpose.NOISE]
    rows = np.concatenate(firsts)
    assert len({row.tobytes() for row in rows}) == len(rows)
    streams = noise()
    first_uniform = streams.uniforms(0, 1)[0, 0]
    assert streams.generators()[0].random() != first_uniform
    assert not np.array_equal(streams.integers(1000, 5), streams.of(Purpose.NOISE).integers(999, 5))


@pytest.mark.parametrize("dimension", [1, 3, 1000, 40_000])
def test_any_position_can_be_read_at_any_time(dimension):
    forwards = noise((0, 4), dimension=dimension)
    path = [forwards.normals().copy() for _ in range(40)]
    backwards = noise((0, 4), dimension=dimension)
    for k in reversed(range(40)):
        backwards.position = k
        np.testing.assert_array_equal(backwards.normals(), path[k])
        assert backwards.position == k + 1


def test_a_sequence_goes_on_across_its_blocks():
    """Blocks hold 4,096 indices; windows cross them, and far ahead nothing before is needed."""
    streams = noise((0, 1))
    whole = streams.integers(50, 10_000)
    assert streams.position == 10_000
    assert whole.min() == 0
    assert whole.max() == 49
    other = noise((0, 1))
    pieces = [other.integers(50, size) for size in (1, 4094, 3, 5000, 902)]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole)
    ahead = noise((0, 1))
    ahead.position = 8_190
    np.testing.assert_array_equal(ahead.integers(50, 10), whole[:, 8_190:8_200])
    np.testing.assert_array_equal(streams.uniforms(4_000, 200)[:, 96:], streams.uniforms(4_096, 104))


def test_coins_move_no_position():
    streams = noise()
    streams.uniforms(0, 100)
    assert streams.position == 0


@settings(max_examples=40)
@given(st.data())
def test_rows_read_the_same_numbers_in_any_grouping(data):
    """Take, put and read at random; each row must see its own sequence at its own position."""
    replications = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    streams = noise(replications, dimension=2)
    rows = len(replications)
    positions = np.zeros(rows, int)
    reference = {r: noise([r], dimension=2) for r in set(replications)}

    def expected(row, kind):
        alone = reference[replications[row]]
        alone.position = int(positions[row])
        return (alone.normals() if kind == "normals" else alone.integers(9, 3))[0]

    for _ in range(data.draw(st.integers(1, 8))):
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
        kind = data.draw(st.sampled_from(["normals", "integers"]))
        if not mask.any():
            mask[:] = True
        chosen = np.flatnonzero(mask)
        part = streams if mask.all() else streams.take(data.draw(st.sampled_from([mask, chosen])))
        values = part.normals() if kind == "normals" else part.integers(9, 3)
        for i, row in enumerate(chosen):
            np.testing.assert_array_equal(values[i], expected(row, kind))
        positions[chosen] += 1 if kind == "normals" else 3
        if part is not streams:
            streams.put(data.draw(st.sampled_from([mask, chosen])), part.position)
        np.testing.assert_array_equal(np.broadcast_to(streams.position, rows), positions)


def test_a_part_is_on_its_own():
    streams = noise()
    part = streams.take(np.array([2, 0]))
    part.normals()
    assert (streams.position, part.position) == (0, 1)
    np.testing.assert_array_equal(part.replications, [2, 0])
    assert part.rows == 2
    again = part.take(np.array([False, True]))
    assert again.position == 1
    expected = noise([0])
    expected.position = 1
    np.testing.assert_array_equal(again.normals(), expected.normals())


def test_positions_are_one_number_where_all_rows_agree():
    streams = noise()
    streams.put(np.array([1]), 5)
    np.testing.assert_array_equal(streams.position, [0, 5, 0])
    streams.put(np.array([True, False, True]), 5)
    assert streams.position == 5
    assert isinstance(streams.position, int)
    assert shared(np.array([], int)) == 0


def test_rows_of_one_replication_share_their_numbers():
    values = noise([3, 1, 3]).normals()
    np.testing.assert_array_equal(values[0], values[2])
    assert not np.array_equal(values[0], values[1])


READS = {
    "normals": lambda streams: streams.normals(),
    "integers": lambda streams: streams.integers(9, 4),
    "uniforms": lambda streams: streams.uniforms(0, 4),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("replications", [[0, 1, 2], [2, 0, 0]])
def test_what_was_handed_out_can_be_changed_without_harm(read, replications):
    """An oracle may scale its noise in place; the sequence stays what it is when it is read again."""
    streams = noise(replications)
    values = read(streams)
    expected = values.copy()
    with contextlib.suppress(ValueError):  # read-only will do as well
        values += 100
    streams.position = 0
    np.testing.assert_array_equal(read(streams), expected)


def test_a_handle_gives_the_same_generator_again():
    source = GeneratorSource(3, Purpose.NOISE, 1)
    first = source.generator(4).normal(size=5)
    source.generator(4).integers(0, 3, size=1, dtype=np.uint32)  # leaves half a word behind
    assert not np.array_equal(source.generator(5).normal(size=5), first)
    assert not np.array_equal(source.generator(4, shard=1).normal(size=5), first)
    np.testing.assert_array_equal(source.generator(4).normal(size=5), first)
    np.testing.assert_array_equal(GeneratorSource(3, Purpose.NOISE, 1).generator(4).normal(size=5), first)


def test_generators_are_those_of_the_handles():
    streams = noise()
    streams.normals()
    by_generators = [rng.random() for rng in streams.generators()]
    assert streams.position == 2
    by_sources = [GeneratorSource(7, Purpose.NOISE, r).generator(1).random() for r in range(3)]
    assert by_generators == by_sources


def test_a_generator_of_one_position_is_not_moved_by_another():
    one, other = noise().generators()[:2]
    mixed = [one.random(), other.random(), one.random()]
    assert len(set(mixed)) == 3
    np.testing.assert_array_equal([mixed[0], mixed[2]], noise().generators()[0].random(2))


def test_only_near_blocks_are_kept_and_far_ones_come_back():
    streams = noise((0, 1), dimension=2048)
    first = streams.normals().copy()
    for position in range(0, 16 * 400, 16):
        streams.position = position
        streams.normals()
    streams.position = 0
    np.testing.assert_array_equal(streams.normals(), first)


def test_a_vector_that_fills_the_cache_is_released_once_read_and_comes_back():
    streams = noise((0,), dimension=1 << 21)
    first = streams.normals_at(0).copy()
    streams.release()
    assert streams._normals._cache  # it has not been read by all
    streams.position = 1
    streams.release()
    assert not streams._normals._cache
    np.testing.assert_array_equal(streams.normals_at(0), first)


def test_nothing_touches_the_global_generator():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    streams = noise()
    streams.normals(), streams.integers(5, 5), streams.uniforms(0, 5), streams.generators()
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
