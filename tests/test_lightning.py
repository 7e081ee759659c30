# SPDX-FileCopyrightText: monai_iels contributors
# SPDX-License-Identifier: Apache-2.0

"""The callback for Lightning, against loops written by hand, with a real Trainer."""

import logging
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer
from programs import run_ranks
from segmentation import Segmentation, batches

from monai_iels import GuidedDiffusion, HeatDiffusion, InverseEvolutionLayer
from monai_iels.lightning import InverseEvolution

SMALL = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
GROWTH = [0.0, 0.5, 1.0]  # of a warm-up of two epochs: off, half, full

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(num_workers|sanity|isn't empty|LeafSpec|treespec)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def layer(equation=HeatDiffusion):
    return InverseEvolutionLayer(equation(), gain=6)


def trained_by_hand(network, growth=GROWTH, equation=HeatDiffusion):
    """Return the network after one epoch per share of the layer's time step."""
    network, full = deepcopy(network), layer(equation)
    for share in growth:
        part = InverseEvolutionLayer(equation(), dt=full.dt * share, steps=full.steps) if share else lambda u, image: u
        for image, label in batches():
            loss = F.cross_entropy(part(network(image), image), label)
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            with torch.no_grad():
                for weight, gradient in zip(network.parameters(), gradients, strict=True):
                    weight -= 0.5 * gradient
    return network


def assert_equal_weights(network, other):
    torch.testing.assert_close(dict(network.state_dict()), dict(other.state_dict()), rtol=0, atol=2e-6)


@pytest.mark.parametrize("equation", [HeatDiffusion, GuidedDiffusion])
def test_a_training_is_that_of_a_loop_with_the_layer_and_validation_is_of_the_network_alone(equation, tmp_path):
    model = Segmentation()
    expected = trained_by_hand(model.net, equation=equation)
    callback = InverseEvolution(layer(equation), 2)
    trainer = Trainer(**SMALL, max_epochs=3, callbacks=[callback], default_root_dir=tmp_path)
    trainer.fit(model, batches(), batches())
    assert_equal_weights(model.net, expected)
    assert not torch.allclose(expected.weight, trained_by_hand(Segmentation().net, [0.0] * 3).weight, atol=1e-3)

    last = model.validated[-len(batches()) :]
    for logits, (image, _) in zip(last, batches(), strict=True):
        torch.testing.assert_close(logits, model.net(image), rtol=0, atol=0)
    torch.testing.assert_close(trainer.predict(model, batches()), last, rtol=0, atol=0)
    assert "forward" not in vars(model)


def test_a_resumed_training_ends_as_one_that_ran_through(tmp_path):
    model = Segmentation()
    expected = trained_by_hand(model.net)
    for epochs, checkpoint in ((2, None), (3, tmp_path / "last.ckpt")):
        trainer = Trainer(
            **SMALL, max_epochs=epochs, callbacks=[InverseEvolution(layer(), 2)], default_root_dir=tmp_path
        )
        trainer.fit(model, batches(), ckpt_path=checkpoint, weights_only=True if checkpoint else None)
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        model = Segmentation()
    model.load_state_dict(torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"])
    assert_equal_weights(model.net, expected)


WITHOUT_MONAI_IELS = """
import sys
sys.path.append(sys.argv[1])
sys.modules["monai"] = sys.modules["monai_iels"] = None
import torch
from lightning.pytorch import Trainer
from segmentation import Segmentation, batches
model = Segmentation.load_from_checkpoint("trained.ckpt", weights_only=True)
trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False)
torch.save(trainer.predict(model, batches()), "predicted.pt")
"""


def test_a_checkpoint_predicts_the_same_where_there_is_no_monai_iels(tmp_path):
    model = Segmentation()
    trainer = Trainer(**SMALL, max_epochs=1, callbacks=[InverseEvolution(layer())], default_root_dir=tmp_path)
    trainer.fit(model, batches())
    trainer.save_checkpoint(tmp_path / "trained.ckpt")
    assert "monai_iels" not in str(torch.load(tmp_path / "trained.ckpt", weights_only=True))
    words = [sys.executable, "-c", WITHOUT_MONAI_IELS, str(Path(__file__).parent)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(tmp_path / "predicted.pt"), trainer.predict(model, batches()), rtol=0, atol=0)


RANKS = """
import os, sys, torch
sys.path.insert(0, sys.argv[1])
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from segmentation import Segmentation, batches
from test_lightning import SMALL, InverseEvolution, layer

rank = int(os.environ["RANK"])
model = Segmentation()
trainer = Trainer(**SMALL, max_epochs=3, devices=2, strategy=DDPStrategy(process_group_backend="gloo"),
                  use_distributed_sampler=False, enable_checkpointing=False, callbacks=[InverseEvolution(layer(), 2)])
trainer.fit(model, batches([rank]))
torch.save(model.net.state_dict(), f"rank{rank}.pt")
"""


def test_two_processes_train_as_one_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ranks.py").write_text(RANKS)
    run_ranks(tmp_path / "ranks.py", Path(__file__).parent, count=2, stdout=tmp_path / "log")
    expected = dict(trained_by_hand(Segmentation().net).state_dict())
    for rank in range(2):
        torch.testing.assert_close(dict(torch.load(f"rank{rank}.pt")), expected, rtol=0, atol=2e-6)


class Elsewhere(Segmentation):
    """The training step does not call `forward`."""

    def training_step(self, batch, index):
        image, label = batch
        return F.cross_entropy(self.net(image), label)


def test_a_network_inside_is_chosen_by_name_and_one_that_is_not_called_is_refused(tmp_path):
    model = Elsewhere()
    expected = trained_by_hand(model.net, [1.0])
    small = {**SMALL, "max_epochs": 1, "enable_checkpointing": False}
    with pytest.raises(ValueError, match=r"training step of Elsewhere does not call self\(\).*set `module` of Inverse"):
        Trainer(**small, callbacks=[InverseEvolution(layer())]).fit(deepcopy(model), batches())
    Trainer(**small, callbacks=[InverseEvolution(layer(), module="net")]).fit(model, batches())
    assert_equal_weights(model.net, expected)
    assert "forward" not in vars(model.net)


class Failing(LightningModule):
    """A training step that ends in an error."""

    def forward(self, image):
        raise RuntimeError("the step failed")

    def training_step(self, batch, index):
        return self(batch[0])

    def configure_optimizers(self):
        return None


def test_a_training_that_fails_leaves_the_module_as_it_was():
    model = Failing()
    trainer = Trainer(**SMALL, max_epochs=1, enable_checkpointing=False, callbacks=[InverseEvolution(layer())])
    with pytest.raises(RuntimeError, match="the step failed"):
        trainer.fit(model, batches())
    assert "forward" not in vars(model)


def test_an_error_outside_of_a_training_leaves_a_forward_of_one_s_own(tmp_path):
    model = Segmentation()
    model.forward = own = lambda image: model.net(image)
    model.validation_step = lambda *_: 1 / 0
    trainer = Trainer(**SMALL, callbacks=[InverseEvolution(layer())], default_root_dir=tmp_path)
    with pytest.raises(ZeroDivisionError):
        trainer.validate(model, batches())
    assert model.forward is own
