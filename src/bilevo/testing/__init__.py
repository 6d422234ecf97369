"""Tests and helpers for authors of algorithms. pytest runs the tests; nothing here needs pytest.

`AlgorithmTests` holds the tests that every algorithm must pass. Subclass it in a file of tests:

    from bilevo.testing import AlgorithmTests
    from my_package import MyAlgorithm

    class TestMyAlgorithm(AlgorithmTests):
        def algorithm(self):
            return MyAlgorithm()

`CountingProblem` counts evaluations independently of the library. `Driven` answers an algorithm's
requests by a formula, so that a part of the algorithm can be tried without a run.
"""

import sys

if "pytest" in sys.modules:  # so that a failed assertion shows its values
    sys.modules["pytest"].register_assert_rewrite("bilevo.testing.conformance")

from bilevo.testing.conformance import AlgorithmTests
from bilevo.testing.counting import CountingProblem
from bilevo.testing.driven import Driven

__all__ = ["AlgorithmTests", "CountingProblem", "Driven"]
