from tests.stages.serving.conftest import serving, stub_world

__all__ = ["serving", "stub_world"]
