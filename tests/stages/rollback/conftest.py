from tests.stages.target.fixtures import line, prepared

__all__ = ["line", "prepared"]
