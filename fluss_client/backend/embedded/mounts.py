"""Whether a path lies on a network file system, where SQLite's locks cannot be trusted."""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/mounts")
NETWORK_TYPES = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph"),
        *("glusterfs", "lustre", "beegfs", "gpfs", "orangefs", "pvfs2", "ocfs2", "gfs2"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.glusterfs"),
        *("fuse.ceph", "fuse.goofys", "fuse.juicefs", "fuse.davfs", "davfs"),
    }
)


def network_type(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the network file system that holds `path`; None when it is local or unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    resolved = path.resolve()
    best, kind = -1, ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        place = Path(_unescaped(fields[1]))
        # Of two mounts on the same place the later one is on top.
        if resolved.is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), fields[2]
    return kind if kind in NETWORK_TYPES else None


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
