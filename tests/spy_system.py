"""A file system of fsspec that notes that it was made, and has nothing: to open a URL of it is to run foreign code."""

import fsspec

MADE = []


class SpySystem(fsspec.AbstractFileSystem):
    """The scheme ``spy``."""

    protocol = "spy"
    cachable = False
    async_impl = True
    asynchronous = True

    def __init__(self, *args, **options):
        MADE.append(options)
        super().__init__(**options)

    async def _cat_file(self, path, **_):
        raise FileNotFoundError(path)

    async def _exists(self, path, **_):
        return False


fsspec.register_implementation("spy", SpySystem, clobber=True)
