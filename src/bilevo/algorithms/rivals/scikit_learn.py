"""A check for scikit-learn, which BLEAQ-II and SA-BL-IMODE need."""

from importlib.util import find_spec


def require_scikit_learn(method: str) -> None:
    """Raise a clear error before the first evaluation where scikit-learn is missing."""
    if find_spec("sklearn") is None:
        raise ImportError(f"{method} needs scikit-learn: pip install 'bilevo[surrogate]'")
