"""Files on local disks and in object stores: where they are, who may read them, what went wrong."""
