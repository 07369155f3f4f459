"""Names of the forms in which objects of libraries travel as arguments.

Each is an `Instance` node whose class name is one of these, instead of a class of the
task module. ``label`` is a number that a later `SHARED` node repeats, so that tied
weights stay tied and an optimiser keeps hold of the model beside it.

    name             state                                            base
    PARAMETER        data: Tensor, requires_grad: bool                label
    TENSOR           data: Tensor, requires_grad: true                label
    SHARED           -                                                label
    MODULE           training, parameters, buffers, modules: tables;  label
                     temporary: list of names of unsaved buffers
    OPTIMIZER        defaults: table, groups: list of tables,         label
                     state: list of (parameter, table)
    DTYPE, DEVICE    -                                                its text
    SIZE             -                                                tuple of extents
    ORDERED          -                                                dict

A module or an optimiser itself is an `Instance` of its class (of the task's source, or a
dotted library class) with its plain attributes as state and one of MODULE and OPTIMIZER
as base. Hooks, gradients and graphs do not travel.
"""

from __future__ import annotations


PARAMETER = "torch.nn.Parameter"
TENSOR = "torch.Tensor"
SHARED = "torch.shared"
MODULE = "torch.nn.Module"
OPTIMIZER = "torch.optim.Optimizer"
DTYPE = "torch.dtype"
DEVICE = "torch.device"
SIZE = "torch.Size"
ORDERED = "collections.OrderedDict"

FORMS = frozenset(
    {PARAMETER, TENSOR, SHARED, MODULE, OPTIMIZER, DTYPE, DEVICE, SIZE, ORDERED}
)
"""All of the above."""

LIBRARY_STATE = frozenset(
    {
        "_reversed_padding_repeated_twice",  # convolutions: integers
        "_qkv_same_embed_dim",  # MultiheadAttention: a flag
        "_size",  # ParameterList: an integer
        "_keys",  # ParameterDict: names of its entries
        "_flat_weights_names",  # recurrent layers: names of their parameters
        "_all_weights",  # the same, by layer
    }
)
"""Private attributes of library modules that travel, each checked when it arrives."""

UNNAMED = frozenset({"torch.nn.modules.linear.NonDynamicallyQuantizableLinear"})
"""Library classes that only instances show (here: in MultiheadAttention)."""
