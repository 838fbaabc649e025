"""One generator per episode, so that episode i depends on nothing that was drawn before it."""

from __future__ import annotations

from enum import IntEnum

from numpy.random import PCG64, Generator, SeedSequence

from cl_cnaps.errors import BadInputError

_WORD = 2**32


class Purpose(IntEnum):
    """What a generator is for: two purposes never share numbers, even with the same seed and index."""

    EPISODE = 1
    MIXTURE = 2
    SHAPE = 3
    AUGMENTATION = 4
    IMAGE_SIZE = 5


def episode_generator(seed: int, index: int, purpose: Purpose, stream: int = 0) -> Generator:
    """The generator of episode `index`; `stream` keeps apart sources that are sampled with the same seed.

    Every entry must fit one 32-bit word: SeedSequence cuts larger numbers into several, and then two
    different tuples could mean the same sequence of words.
    """
    for what, value in (("seed", seed), ("episode index", index), ("stream", stream)):
        if not 0 <= value < _WORD:
            raise BadInputError(f"{what} is {value}; it must be in 0..{_WORD - 1}")
    return Generator(PCG64(SeedSequence([seed, index, int(purpose), stream])))
