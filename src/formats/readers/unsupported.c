/* Formats that are not read: a file of one is refused with the name of the format and a way to convert it. */
#include <string.h>

#include "formats/readers/readers.h"

#define CONVERT_TORCH                                                                                                  \
    "convert it with safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')"
#define CONVERT_GGML "convert it to GGUF with the scripts of llama.cpp"
#define UNPACK "unpack it first"

/* A format is recognised by bytes at a fixed position; a negative position counts from the end. */
static const struct {
    int at;
    const char *bytes;
    size_t count;
    const char *name, *advice;
} magics[] = {
    {0, "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20j\xa8P\x19", 14, "a PyTorch checkpoint (pickle from before version 1.6)",
     CONVERT_TORCH},
    {0, "\x80\x02", 2, "a Python pickle, which holds code to run", CONVERT_TORCH},
    {0, "\x80\x03", 2, "a Python pickle, which holds code to run", CONVERT_TORCH},
    {0, "\x80\x04", 2, "a Python pickle, which holds code to run", CONVERT_TORCH},
    {0, "\x80\x05", 2, "a Python pickle, which holds code to run", CONVERT_TORCH},
    {0, "\x89HDF\r\n\x1a\n", 8, "HDF5 (Keras or another program)",
     "load it with h5py or keras and save with safetensors.numpy.save_file"},
    {0, "PK\x03\x04", 4, "a zip archive (as PyTorch writes checkpoints)", CONVERT_TORCH},
    {0, "24ka", 4, "a llama2.c checkpoint (version 1 or 2)",
     "export it with llama2.c's export.py --version -1 (Hugging Face)"},
    {0, "lmgg", 4, "a ggml file of before GGUF", CONVERT_GGML},
    {0, "fmgg", 4, "a ggml file of before GGUF", CONVERT_GGML},
    {0, "tjgg", 4, "a ggml file of before GGUF", CONVERT_GGML},
    {4, "TFL3", 4, "a TensorFlow Lite model",
     "load its tensors with tensorflow and save with safetensors.numpy.save_file"},
    {-8, "\x57\xfb\x80\x8b\x24\x75\x47\xdb", 8, "the index of a TensorFlow checkpoint",
     "read it with tf.train.load_checkpoint and save with safetensors.numpy.save_file"},
    {0, "model_checkpoint_path:", 22, "the list of a TensorFlow checkpoint",
     "read it with tf.train.load_checkpoint and save with safetensors.numpy.save_file"},
    {0, "version https://git-lfs.github.com", 34, "a Git LFS pointer, not the file itself",
     "fetch it with git lfs pull"},
    {0, "<!DOCTYPE", 9, "a web page", "download the file itself"},
    {0, "<!doctype", 9, "a web page", "download the file itself"},
    {0, "<html", 5, "a web page", "download the file itself"},
    {0, "\x1f\x8b", 2, "compressed by gzip", UNPACK},
    {0, "\3757zXZ", 5, "compressed by xz", UNPACK},
    {0, "BZh", 3, "compressed by bzip2", UNPACK},
    {0, "\x28\xb5\x2f\xfd", 4, "compressed by zstd", UNPACK},
    {257, "ustar", 5, "a tar archive", UNPACK},
};

/* The parts of the file that are examined: its first bytes and its last. */
typedef struct glimpse {
    unsigned char head[512], tail[8];
    size_t head_bytes;
    uint64_t size;
} glimpse;

static bool has_magic(const glimpse *g, int at, const char *bytes, size_t count)
{
    if (at < 0)
        return g->size >= sizeof g->tail && memcmp(g->tail, bytes, count) == 0;
    return g->head_bytes >= (size_t)at + count && memcmp(g->head + at, bytes, count) == 0;
}

mha_status mha__foreign_refuse(const mha__source *source, mha_error *error)
{
    glimpse g = {.size = source->size};
    g.head_bytes = source->size < sizeof g.head ? (size_t)source->size : sizeof g.head;
    TRY(mha__source_read(source, 0, g.head, g.head_bytes, error));
    if (source->size >= sizeof g.tail)
        TRY(mha__source_read(source, source->size - sizeof g.tail, g.tail, sizeof g.tail, error));
    const char *name = NULL, *advice = NULL;
    for (size_t i = 0; i < sizeof magics / sizeof *magics && !name; i++)
        if (has_magic(&g, magics[i].at, magics[i].bytes, magics[i].count)) {
            name = magics[i].name;
            advice = magics[i].advice;
        }
    if (!name)
        return MHA_OK;
    return mha__fail(error, MHA_UNSUPPORTED, source->path, "expected safetensors, npy, npz or GGUF, found %s: %s", name,
                     advice);
}
