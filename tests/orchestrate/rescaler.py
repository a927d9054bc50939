"""Changes the bucket count of a table, where that can be done."""

from __future__ import annotations

import pytest

from fluss_client import FlussConnection, TablePath
from fluss_client.errors import UnsupportedByServerError


class Rescaler:
    """Changes the bucket count of a table and creates partitions with the count it has then."""

    def __init__(self, connection: FlussConnection, path: TablePath, first: str) -> None:
        self._admin = connection.get_admin().result()
        self._path = path
        self.can_rescale = connection.backend.capabilities.rescaling
        info = self._admin.get_table_info(path).result()
        self.counts = {first: info.num_buckets}
        self.count = info.num_buckets

    def rescale(self, count: int) -> None:
        if self.can_rescale:
            self._admin.alter_table(self._path, bucket_count=count).result()
            self.count = count
            return
        with pytest.raises(UnsupportedByServerError):
            self._admin.alter_table(self._path, bucket_count=count).result()

    def add(self, day: str) -> None:
        self._admin.create_partition(self._path, {"day": day}).result()
        self.counts[day] = self.count
