"""Writes safetensors files with nothing but the standard library and numpy."""
import json
import struct

import numpy as np

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}


def write(path, tensors, metadata=None):
    """tensors: name -> array. Lies in the file by element size (8, 4, 2, 1 bytes), so each is aligned."""
    header, at, ordered = {}, 0, []
    if metadata:
        header["__metadata__"] = {key: str(value) for key, value in metadata.items()}
    for name, array in sorted(tensors.items(), key=lambda item: -np.asarray(item[1]).dtype.itemsize):
        array = np.asarray(array, order="C")
        header[name] = {"dtype": NAMES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
        ordered.append(array)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in ordered:
            file.write(array.tobytes())
