"""Models of what has been evaluated, for the algorithms that use some. They do no I/O either."""

from importlib.util import find_spec


def require_scikit_learn(method: str) -> None:
    """For methods that use it: a clear error before the first evaluation where it is missing."""
    if find_spec("sklearn") is None:
        raise ImportError(f"{method} needs scikit-learn: pip install 'bilevo[surrogate]'")
