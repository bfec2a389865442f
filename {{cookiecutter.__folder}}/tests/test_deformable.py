"""Deformable convolution: where it looks, what it starts as, and that it can be exported."""

import numpy as np
import onnxruntime
import torch
from torch import nn

from {{ cookiecutter.package }}.techniques.deformable import DeformableBlock


def test_it_starts_as_a_plain_convolution():
    torch.manual_seed(0)
    block, image = DeformableBlock(3, 4, stride=2).eval(), torch.randn(2, 3, 9, 9)
    plain = nn.functional.conv2d(image, block.convolution.weight, stride=2, padding=1)
    with torch.no_grad():
        torch.testing.assert_close(block(image), block.norm(plain).relu(), rtol=1e-4, atol=1e-5)


def test_an_offset_looks_elsewhere():
    """All points shifted one row down give what the image moved one row up gives."""
    torch.manual_seed(0)
    block, image = DeformableBlock(1, 2).eval(), torch.randn(1, 1, 12, 12)
    block.where.bias.data[0:18:2] = 1.0  # down, for each of the nine points
    with torch.no_grad():
        shifted = block(image)[..., 2:-3, 2:-2]
        block.where.bias.data.zero_()
        moved = block(image.roll(-1, dims=2))[..., 2:-3, 2:-2]
    torch.testing.assert_close(shifted, moved, rtol=1e-4, atol=1e-5)


def test_where_it_looks_is_learnt():
    """The gradient reaches the offsets of every point."""
    block = DeformableBlock(2, 3)
    block(torch.randn(2, 2, 8, 8)).square().sum().backward()
    assert block.where.weight.grad is not None
    assert (block.where.weight.grad.flatten(1).norm(dim=1) > 0).all()


def test_its_export_computes_the_same_at_any_batch_size(tmp_path):
    torch.manual_seed(0)
    block = DeformableBlock(2, 3).eval()
    nn.init.normal_(block.where.weight, std=0.5)
    image = torch.randn(4, 2, 8, 8)
    program = torch.onnx.export(block, (image,), dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False)
    program.save(tmp_path / "block.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "block.onnx", providers=["CPUExecutionProvider"])
    for size in (1, 4):
        with torch.no_grad():
            expected = block(image[:size]).numpy()
        (actual,) = session.run(None, {session.get_inputs()[0].name: image[:size].numpy()})
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)
