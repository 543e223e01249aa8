/* The numbers of a tensor: packed, as its views show them, or both. */
#include <pthread.h>

#include "base/base.h"
#include "params/table.h"

static mha_view view_at(const mha_tensor *tensor, void *data)
{
    mha_view view = mha_view_of(data, tensor->storage->dtype, tensor->rank, tensor->shape);
    if (tensor->storage->by_column && tensor->rank == 2)
        view.stride[0] = 1, view.stride[1] = (ptrdiff_t)tensor->shape[0];
    return view;
}

mha_view mha_tensor_view(const mha_tensor *tensor)
{
    tensor->storage->asked = true;
    return mha__tensor_plain(tensor);
}

mha_status mha__tensor_pack(mha_tensor *tensor, size_t bytes, const mha__packer *packer)
{
    mha__tensor_storage *s = tensor->storage;
    if (s->packed)
        return MHA_OK;
    s->packed = mha__allocate(&tensor->table->allocator, bytes);
    if (!s->packed)
        return MHA_NO_MEMORY;
    s->packed_bytes = bytes;
    s->packer = packer;
    s->matrix = view_at(tensor, NULL);
    mha__tensor_repack(tensor);
    if (packer->unpack && !s->asked)
        mha__storage_drop(tensor->table, s);
    return MHA_OK;
}

void mha__tensor_repack(mha_tensor *tensor)
{
    mha__tensor_storage *s = tensor->storage;
    mha_view matrix = s->matrix;
    matrix.data = s->data;
    if (s->packed && matrix.data)
        s->packer->pack(&matrix, s->packed);
}

void mha__tensor_unpack(mha_tensor *tensor)
{
    mha__tensor_storage *s = tensor->storage;
    if (!s->packed || !mha__tensor_plain(tensor).data)
        return;
    mha__release(&tensor->table->allocator, s->packed, s->packed_bytes);
    s->packed = NULL;
    s->packed_bytes = 0;
}

void *mha__tensor_packed(const mha_tensor *tensor)
{
    return tensor->storage->packed;
}

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* A tensor that another thread was unpacking is still packed in a child, which may unpack it itself. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&one_at_a_time, NULL);
}

/* Runs when the program starts, because later another thread could fork at the same time. */
__attribute__((constructor)) static void prepare_for_fork(void)
{
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

mha_view mha__tensor_plain(const mha_tensor *tensor)
{
    mha__tensor_storage *s = tensor->storage;
    if (s->data || !s->packed)
        return view_at(tensor, s->data);
    pthread_mutex_lock(&one_at_a_time);
    mha_view matrix = s->matrix;
    matrix.data = s->data ? NULL : mha__storage_renew(tensor->table, s);
    if (matrix.data) {
        s->packer->unpack(s->packed, &matrix);
        s->data = matrix.data;
    }
    pthread_mutex_unlock(&one_at_a_time);
    return view_at(tensor, s->data);
}

bool mha__tensor_drop_plain(mha_tensor *tensor)
{
    mha__tensor_storage *s = tensor->storage;
    s->asked = false;
    if (!s->packed || !s->packer->unpack || !s->data)
        return false;
    mha__storage_drop(tensor->table, s);
    return true;
}
