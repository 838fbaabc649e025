"""What each process of `test_ranks.py` does, started by torchrun: train, then train again with a bad task."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from training.small import small_recipe, small_training

from cl_cnaps.training import ranks as processes
from cl_cnaps.training import step
from cl_cnaps.training.ranks import Ranks
from cl_cnaps.training.step import NotFiniteError, TaskScore, add_gradient, share


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    # As on two machines: only the first process's folder is to be written to.
    with Ranks.join("cpu") as ranks:
        own = folder if ranks.first else folder / f"rank{ranks.rank}"
        how: dict[str, Any] = {"ranks": ranks, "name": "transductive", "dtype": torch.float64}
        endings = [small_training(small_recipe(), own / "good", **how).run().value]
        # Going on: only the first process has the checkpoint.
        longer = small_recipe(training={"tasks": 14})
        endings.append(small_training(longer, own / "good", resume=True, **how).run().value)

        part = torch.arange(5) * (1 + ranks.rank)
        assert torch.equal(ranks.sum(part), 3 * torch.arange(5))
        processes.GATHERED = 1  # more are added up by the back end
        assert torch.equal(ranks.sum(part), 3 * torch.arange(5))
        assert torch.equal(part, torch.arange(5) * (1 + ranks.rank))

        bad = small_training(small_recipe(), own / "bad", ranks=ranks)
        index = share(range(4, 8), Ranks(1, 2, 1, ranks.device), bad.data.training.images)[0]
        poison = bad.data.training[index].batch.support_images

        def poisoned(model: Any, batch: Any, options: Any) -> TaskScore:
            if batch.support_images.shape == poison.shape and torch.equal(batch.support_images, poison):
                raise NotFiniteError(f"seen by rank {ranks.rank}")
            return add_gradient(model, batch, options)

        step.add_gradient = poisoned
        endings.append(bad.run().value)
        (folder / f"endings{ranks.rank}.json").write_text(json.dumps(endings))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
