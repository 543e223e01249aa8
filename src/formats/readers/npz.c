/* The npz format of NumPy: a zip archive of npy files. Unpacking is libzip's. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <zip.h>

#include "formats/readers/readers.h"
#include "lab/lab.h"

/* Codes that libzip 1.8 and 1.11 added. */
#ifndef ZIP_ET_LIBZIP
#define ZIP_ET_LIBZIP 3
#endif
#ifndef ZIP_ER_TRUNCATED_ZIP
#define ZIP_ER_TRUNCATED_ZIP 35
#endif

zip_file_t *mha__zip_member(zip_t *archive, size_t index)
{
    errno = 0;
    return zip_fopen_index(archive, index, 0);
}

int64_t mha__zip_read(zip_file_t *member, void *to, size_t bytes)
{
    errno = 0;
    return zip_fread(member, to, bytes);
}

/* Without memory libzip (1.7) reports a damaged archive, and after a failed read a truncated one; errno has the
 * cause. From 1.8 on, a failed zip_fdopen stores libzip's own detail of the damage in errno. */
mha_status mha__zip_failed(zip_error_t *why, const char *name, mha_error *error)
{
    const bool detail = zip_error_system_type(why) == ZIP_ET_LIBZIP && zip_error_code_system(why) == errno;
    const int machine = detail ? 0 : errno, code = zip_error_code_zip(why);
    if (code == ZIP_ER_MEMORY || machine == ENOMEM)
        return mha__fail(error, MHA_NO_MEMORY, name, "no memory to read the archive");
    if (code == ZIP_ER_EOF && machine != 0)
        return mha__fail(error, MHA_IO, name, "cannot read the archive: %s", strerror(machine));
    if (zip_error_system_type(why) == ZIP_ET_SYS)
        return mha__fail(error, MHA_IO, name, "cannot read the archive: %s", zip_error_strerror(why));
    return mha__fail(error, MHA_FORMAT, name, "expected a zip archive, found a damaged one: %s",
                     code == ZIP_ER_NOZIP || code == ZIP_ER_TRUNCATED_ZIP ? "its end is missing (a truncated file?)"
                     : code == ZIP_ER_EXISTS                              ? "two members have the same name"
                                                                          : zip_error_strerror(why));
}

/* PyTorch and Keras keep their models in zip archives too. */
static mha_status refuse_other_archives(const mha_file *file, zip_t *archive, mha_error *error)
{
    for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); i++) {
        const char *name = zip_get_name(archive, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
        if (!name)
            continue; /* unreachable: opening checked the directory */
        if (mha__text_ends(name, "data.pkl") || mha__text_ends(name, "constants.pkl"))
            return mha__fail(
                error, MHA_UNSUPPORTED, file->path,
                "expected tensors, found a PyTorch checkpoint (zip archive with %s), which holds code to run; convert "
                "it with safetensors.torch.save_file(torch.load(path, weights_only=True), 'model.safetensors')",
                name);
        if (mha__text_ends(name, ".weights.h5"))
            return mha__fail(error, MHA_UNSUPPORTED, file->path,
                             "expected tensors, found a Keras model (zip archive with %s); load it with keras and save "
                             "its weights with safetensors.numpy.save_file",
                             name);
        if (!mha__text_ends(name, ".npy"))
            return mha__fail(error, MHA_UNSUPPORTED, file->path,
                             "expected an npz archive of .npy members, found a zip archive with '%s'", name);
    }
    return MHA_OK;
}

static mha_status read_header(mha_file *file, zip_file_t *member, const char *name, mha__npy_header *header,
                              mha_error *error)
{
    unsigned char prefix[MHA_NPY_PREFIX];
    int64_t got = mha__zip_read(member, prefix, sizeof prefix);
    if (got < 0)
        return mha__zip_failed(zip_file_get_error(member), name, error);
    size_t length, available = (size_t)got;
    TRY(mha__npy_header_length(prefix, available, name, &length, error));
    unsigned char *bytes = mha__allocate(&file->allocator, length);
    if (!bytes)
        return mha__fail(error, MHA_NO_MEMORY, name, "no memory for a header of %zu bytes", length);
    available = available < length ? available : length;
    memcpy(bytes, prefix, available);
    mha_status status;
    got = available < length ? mha__zip_read(member, bytes + available, length - available) : 0;
    if (got < 0)
        status = mha__zip_failed(zip_file_get_error(member), name, error);
    else if ((size_t)got != length - available)
        status =
            mha__fail(error, MHA_FORMAT, name, "expected an npy header of %zu bytes, found a damaged archive", length);
    else
        status = mha__npy_header_parse(bytes, length, name, header, error);
    mha__release(&file->allocator, bytes, length);
    return status;
}

/* The data after the header of an array without extents: metadata of the file, under the member's name. */
static mha_status read_scalar(mha_file *file, zip_file_t *member, const char *key, size_t key_length,
                              const mha__npy_header *header, const char *name, mha_error *error)
{
    const size_t bytes = mha__npy_scalar_bytes(header), room = bytes < 8 ? 8 : bytes;
    unsigned char *data = mha__allocate(&file->allocator, room);
    if (!data)
        return mha__file_no_memory(file, error);
    unsigned char behind; /* libzip checks the checksum only when the end is read */
    const int64_t got = bytes > 0 ? mha__zip_read(member, data, bytes) : 0;
    const int64_t more = got >= 0 ? mha__zip_read(member, &behind, 1) : got;
    mha_status status;
    if (more < 0)
        status = mha__zip_failed(zip_file_get_error(member), name, error);
    else if ((size_t)got != bytes || more > 0)
        status = mha__fail(error, MHA_FORMAT, name, "expected %zu bytes, found a damaged archive", bytes);
    else
        status = mha__npy_scalar_add(file, key, key_length, header, data, name, error);
    mha__release(&file->allocator, data, room);
    return status;
}

/* A member is a tensor; without extents it is metadata as well, and a text is only metadata. */
static mha_status read_member(mha_file *file, zip_file_t *member, size_t index, const zip_stat_t *facts,
                              const char *name, mha_error *error)
{
    const size_t key_length = strlen(facts->name) - strlen(".npy");
    mha__npy_header header = {0};
    TRY(read_header(file, member, name, &header, error));
    mha_file_tensor *t = &header.entry.tensor;
    const bool text = header.character_bytes > 0, scalar = t->rank == 0 && t->dtype != MHA_C64;
    size_t bytes = text ? mha__npy_scalar_bytes(&header) : 0;
    if (text && t->rank > 0)
        return mha__npy_needs_numbers(&header, name, error);
    if (!text) {
        header.entry.source = index;
        t->offset = header.bytes;
        TRY(mha__file_add_tensor(file, facts->name, key_length, &header.entry, 0, error));
        bytes = mha_file_at(file, mha_file_count(file) - 1)->bytes;
    }
    if (facts->size < header.bytes || facts->size - header.bytes != bytes)
        return mha__fail(error, MHA_FORMAT, name,
                         "expected %zu bytes after a header of %zu, found a member of %" PRIu64 " bytes", bytes,
                         header.bytes, (uint64_t)facts->size);
    return scalar ? read_scalar(file, member, facts->name, key_length, &header, name, error) : MHA_OK;
}

/* The entry of a member in the directory of the archive. */
static mha_status check_entry(const mha_file *file, zip_t *archive, zip_uint64_t index, zip_stat_t *facts,
                              mha_error *error)
{
    const zip_uint64_t needed = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if (zip_stat_index(archive, index, ZIP_FL_ENC_RAW, facts) != 0 || (facts->valid & needed) != needed)
        return mha__zip_failed(zip_get_error(archive), file->path, error); /* unreachable: opening checked this */
    if (facts->encryption_method != ZIP_EM_NONE)
        return mha__fail_inside(error, MHA_UNSUPPORTED, file->path, facts->name, 0,
                                "expected a plain member, found an encrypted one");
    if (facts->comp_method == ZIP_CM_STORE && facts->comp_size != facts->size)
        return mha__fail_inside(error, MHA_FORMAT, file->path, facts->name, 0,
                                "expected a stored member of %" PRIu64 " bytes, found %" PRIu64, (uint64_t)facts->size,
                                (uint64_t)facts->comp_size);
    return MHA_OK;
}

static mha_status parse_member(mha_file *file, zip_t *archive, zip_uint64_t index, mha_error *error)
{
    zip_stat_t facts;
    TRY(check_entry(file, archive, index, &facts, error));
    char name[sizeof error->name];
    mha__name_inside(name, sizeof name, file->path, facts.name);
    zip_file_t *member = mha__zip_member(archive, (size_t)index);
    if (!member)
        return mha__zip_failed(zip_get_error(archive), name, error);
    const mha_status status = read_member(file, member, (size_t)index, &facts, name, error);
    zip_fclose(member);
    return status;
}

static zip_t *open_archive(const mha__source *source, int flags, zip_error_t *why)
{
    int code = ZIP_ER_OPEN;
    errno = 0;
    const int own = dup(source->fd); /* libzip closes the descriptor that it gets */
    zip_t *archive = own < 0 ? NULL : zip_fdopen(own, flags, &code);
    if (!archive) {
        zip_error_init_with_code(why, code);
        if (own >= 0)
            close(own);
    }
    return archive;
}

/* The last record of an archive has 22 bytes. libzip 1.11 reports one with fewer as an inconsistent archive. */
static bool last_record_is_cut(const mha__source *source)
{
    char tail[21];
    return source->size > sizeof tail &&
           mha__source_read(source, source->size - sizeof tail, tail, sizeof tail, NULL) == MHA_OK &&
           memmem(tail, sizeof tail, "PK\5\6", 4) != NULL;
}

/* The error of an archive that did not open. libzip 1.11 refuses an archive for the sizes of one entry, which 1.7 does
 * not compare: opened without checks, its entries tell which one. */
static mha_status refuse_archive(const mha_file *file, const mha__source *source, zip_error_t *why, mha_error *error)
{
    const int machine = errno;
    mha_status status = MHA_OK;
    if (zip_error_code_zip(why) == ZIP_ER_INCONS) {
        zip_error_t unchecked;
        zip_t *archive = open_archive(source, 0, &unchecked);
        const zip_int64_t members = archive ? zip_get_num_entries(archive, 0) : 0;
        for (zip_int64_t i = 0; i < members && status == MHA_OK; i++)
            status = check_entry(file, archive, (zip_uint64_t)i, &(zip_stat_t){0}, error);
        if (archive)
            zip_discard(archive);
        else
            zip_error_fini(&unchecked);
        if (last_record_is_cut(source))
            zip_error_set(why, ZIP_ER_NOZIP, 0);
    }
    errno = machine;
    return status != MHA_OK ? status : mha__zip_failed(why, file->path, error);
}

mha_status mha__npz_parse(mha_file *file, size_t index, mha_error *error)
{
    const mha__source *source = mha__file_source(file, index);
    zip_error_t why;
    zip_t *archive = open_archive(source, ZIP_CHECKCONS, &why);
    if (!archive) {
        const mha_status status = refuse_archive(file, source, &why, error);
        zip_error_fini(&why);
        return status;
    }
    file->archive = archive;
    zip_int64_t members = zip_get_num_entries(archive, 0);
    mha_status status = refuse_other_archives(file, archive, error);
    for (zip_int64_t i = 0; i < members && status == MHA_OK; i++)
        status = parse_member(file, archive, (zip_uint64_t)i, error);
    return status;
}
