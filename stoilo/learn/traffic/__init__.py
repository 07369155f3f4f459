"""Models and gradients between a project's own nodes, on trees that find themselves.

`distribution` decides who sends a version to whom next, `aggregation` who adds up with whom;
both by the rates that `links` remembers. They are pure: a clock and a source of chance are
arguments. `bench.traffic` has fixed trees and bounds beside them, and a network without wires.
Source: TSEngine (AL-CSP and MWD-CSP).
"""
