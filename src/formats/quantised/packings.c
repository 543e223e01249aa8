/* Finds the tensors of a file that hold a weight together, and lists the weight in their place. */
#include <string.h>

#include "formats/quantised/packings.h"
#include "lab/lab.h"

#define BIT(part) (1u << MHA_PART_##part)

/* clang-format off */
/* The ways to hold a weight in several tensors, in the order in which they are tried. */
static const mha__packing_kind kinds[] = {
    {"GPTQ", {".qweight", ".scales", ".qzeros", ".g_idx"}, BIT(SCALES) | BIT(ZEROS), ".weight",
     mha__fit_gptq, mha__check_gptq, mha__value_gptq},
    {"AWQ", {".qweight", ".scales", ".qzeros"}, BIT(SCALES) | BIT(ZEROS), ".weight",
     mha__fit_awq, NULL, mha__value_awq},
    {"bitsandbytes", {".weight", ".SCB", [MHA_PART_UNUSED] = ".weight_format"}, BIT(SCALES), ".weight",
     mha__fit_int8, NULL, mha__value_int8},
    {"bitsandbytes", {".weight", ".weight.absmax", [MHA_PART_TABLE] = ".weight.quant_map",
     ".weight.nested_absmax", ".weight.nested_quant_map", ".weight.quant_state.bitsandbytes__nf4"},
     BIT(SCALES) | BIT(TABLE) | BIT(STATE), ".weight", mha__fit_4bit, NULL, mha__value_4bit},
    {"bitsandbytes", {".weight", ".weight.absmax", [MHA_PART_TABLE] = ".weight.quant_map",
     ".weight.nested_absmax", ".weight.nested_quant_map", ".weight.quant_state.bitsandbytes__fp4"},
     BIT(SCALES) | BIT(TABLE) | BIT(STATE), ".weight", mha__fit_4bit, NULL, mha__value_4bit},
    {"compressed-tensors", {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx",
     [MHA_PART_STATE] = ".weight_shape"}, BIT(SCALES) | BIT(STATE), ".weight",
     mha__fit_compressed, mha__check_groups, mha__value_compressed},
    {"NVFP4", {".weight_packed", ".weight_scale", [MHA_PART_TABLE] = ".weight_global_scale",
     [MHA_PART_UNUSED] = ".input_global_scale"}, BIT(SCALES) | BIT(TABLE), ".weight",
     mha__fit_nvfp4, NULL, mha__value_nvfp4_divided},
    {"NVFP4", {".weight", ".weight_scale", [MHA_PART_TABLE] = ".weight_scale_2", [MHA_PART_UNUSED] = ".input_scale"},
     BIT(SCALES) | BIT(TABLE), ".weight", mha__fit_nvfp4, NULL, mha__value_nvfp4},
    {"scaled", {".weight", ".weight_scale", ".weight_zero_point", [MHA_PART_UNUSED] = ".input_scale",
     ".output_scale"}, BIT(SCALES), ".weight", mha__fit_scaled, NULL, mha__value_scaled},
    {"scaled", {".weight", ".weight_scale_inv", ".weight_zero_point", [MHA_PART_UNUSED] = ".input_scale",
     ".activation_scale"}, BIT(SCALES), ".weight", mha__fit_scaled, NULL, mha__value_scaled},
    {"scaled", {"", "_scale_inv", "_zero_point"}, BIT(SCALES), "", mha__fit_scaled, NULL, mha__value_scaled},
    {"scaled", {"", "_scale", "_zero_point"}, BIT(SCALES), "", mha__fit_scaled, NULL, mha__value_scaled},
    {"MXFP4", {"_blocks", "_scales"}, BIT(SCALES), "", mha__fit_mxfp4, NULL, mha__value_mxfp4},
};
/* clang-format on */

static const mha__entry *entry_at(const mha_file *file, size_t index)
{
    return (const mha__entry *)file->entries.items + index;
}

/* Types that codes have: those of numbers of a byte, and I32. Most tensors have another one, and are not looked at. */
static bool may_be_codes(mha_dtype dtype)
{
    return dtype == MHA_I32 || dtype == MHA_U8 || dtype == MHA_I8 || dtype == MHA_F8_E4M3 || dtype == MHA_F8_E5M2 ||
           dtype == MHA_F8_E4M3FNUZ || dtype == MHA_F8_E5M2FNUZ;
}

/* The parts of a packed tensor with the codes `codes`: entries, and their numbers; false: one that is needed is
 * missing, or one belongs to another tensor. */
static bool find_parts(const mha_file *file, const mha__joining *joining, const mha__packing_kind *kind,
                       const mha__entry *codes, size_t stem, const mha__entry *parts[MHA_PARTS],
                       size_t numbers[MHA_PARTS])
{
    char name[512];
    for (int p = 0; p < MHA_PARTS; p++) {
        parts[p] = p == MHA_PART_CODES ? codes : NULL;
        numbers[p] = SIZE_MAX;
        const size_t tail = kind->endings[p] ? strlen(kind->endings[p]) : 0;
        if (p != MHA_PART_CODES && tail > 0 && stem + tail < sizeof name) {
            memcpy(name, codes->tensor.name, stem);
            memcpy(name + stem, kind->endings[p], tail + 1);
            parts[p] = (const mha__entry *)mha_file_find(file, name);
        }
        if (parts[p] && joining->is[parts[p]->tensor.index] == MHA_OWN)
            numbers[p] = parts[p]->tensor.index;
        else if (parts[p] || kind->needed >> p & 1)
            return false;
    }
    return true;
}

/* The JSON of a part: text of at most STATE_LIMIT bytes, or "". */
enum { STATE_LIMIT = 4096 };
static mha_status read_state(const mha_file *file, const mha__entry *part, char text[STATE_LIMIT + 1], mha_error *error)
{
    text[0] = '\0';
    if (!part || part->tensor.bytes > STATE_LIMIT)
        return MHA_OK;
    text[part->tensor.bytes] = '\0';
    return mha__source_read(mha__file_source(file, part->source), part->tensor.offset, text, part->tensor.bytes, error);
}

/* The name of the packed tensor, kept by the file; NULL: no memory. *free: no other tensor has it. */
static const char *name_of(mha_file *file, const mha__packing_kind *kind, const mha__entry *codes, size_t stem,
                           bool *free)
{
    const size_t tail = strlen(kind->ending);
    *free = true;
    if (strcmp(kind->ending, kind->endings[MHA_PART_CODES]) == 0)
        return codes->tensor.name;
    char *name = mha__file_text(file, NULL, stem + tail);
    if (name) {
        memcpy(name, codes->tensor.name, stem);
        memcpy(name + stem, kind->ending, tail);
        *free = !mha_file_find(file, name);
    }
    return name;
}

static mha_status try_kind(mha_file *file, mha__joining *joining, const mha__packing_kind *kind,
                           const mha__entry *codes, mha_error *error)
{
    const mha__entry *parts[MHA_PARTS];
    mha__packed_tensor packed = {.tensor = codes->tensor, .packing = {.kind = kind, .one_grid = true}};
    char state[STATE_LIMIT + 1];
    const size_t stem = mha__text_stem(codes->tensor.name, kind->endings[MHA_PART_CODES]);
    if (stem == SIZE_MAX || stem == 0 || !find_parts(file, joining, kind, codes, stem, parts, packed.packing.parts))
        return MHA_OK;
    TRY(read_state(file, parts[MHA_PART_STATE], state, error));
    mha__said *said = &joining->said;
    said->state = state;
    const mha__packed_tensor unknown = packed;
    bool fits = kind->fit(parts, said, &packed);
    if (!joining->asked && (said->format_matters || said->rows.matter || said->columns.matter)) {
        TRY(mha__sidecar_read(file, said, error));
        joining->asked = true;
        packed = unknown;
        fits = kind->fit(parts, said, &packed);
    }
    if (!fits)
        return MHA_OK;
    bool free = true;
    packed.packing.name = name_of(file, kind, codes, stem, &free);
    if (!packed.packing.name)
        return mha__file_no_memory(file, error);
    if (!free)
        return MHA_OK;
    const mha_view whole = mha_view_of(NULL, MHA_F32, packed.tensor.rank, packed.tensor.shape);
    packed.tensor.elements = mha_view_elements(&whole);
    packed.tensor.bytes = 0; /* those of all parts, the codes among them */
    for (int p = 0; p < MHA_PARTS; p++)
        if (parts[p]) {
            joining->is[parts[p]->tensor.index] = p == MHA_PART_CODES ? MHA_IS_CODES : MHA_IS_PART;
            packed.tensor.bytes += parts[p]->tensor.bytes;
        }
    packed.tensor.name = packed.packing.name;
    packed.tensor.reads_as = MHA_F32;
    packed.tensor.packing = kind->name;
    mha__packed_tensor *place = mha__list_add(&file->allocator, &joining->found);
    if (!place)
        return mha__file_no_memory(file, error);
    *place = packed;
    return MHA_OK;
}

mha_status mha__packings_find(mha_file *file, mha__joining *joining, mha_error *error)
{
    joining->found.item_bytes = sizeof(mha__packed_tensor);
    joining->count = file->entries.count;
    joining->is = mha__allocate(&file->allocator, joining->count + 1);
    if (!joining->is)
        return mha__file_no_memory(file, error);
    for (size_t i = 0; i < file->entries.count; i++) {
        const mha__entry *codes = entry_at(file, i);
        joining->said.format_unknown = false;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if (joining->is[i] == MHA_OWN && may_be_codes(codes->tensor.dtype))
                TRY(try_kind(file, joining, &kinds[k], codes, error));
        if (joining->is[i] == MHA_OWN && joining->said.format_unknown)
            return mha__fail_inside(error, MHA_UNSUPPORTED, mha__entry_path(file, codes), codes->tensor.name, 0,
                                    "expected checkpoint_format gptq or gptq_v2, found '%.40s'", joining->said.format);
    }
    return MHA_OK;
}

/* ---------------------------------------------------------------- the new lists */

mha_status mha__packings_apply(mha_file *file, mha__joining *joining, mha_error *error)
{
    const size_t count = file->entries.count;
    mha__list listed = {.item_bytes = sizeof(mha__entry)};
    size_t *numbers = mha__allocate(&file->allocator, count * sizeof *numbers); /* of a part in the list of parts */
    bool enough = numbers != NULL;
    const mha__packed_tensor *packed = joining->found.items;
    file->parts.item_bytes = sizeof(mha__entry);
    for (size_t i = 0; enough && i < count; i++) {
        if (joining->is[i] != MHA_OWN) {
            mha__entry *part = mha__list_add(&file->allocator, &file->parts);
            enough = part != NULL;
            numbers[i] = file->parts.count - 1;
            if (enough)
                *part = *entry_at(file, i);
        }
        mha__entry *shown = enough && joining->is[i] != MHA_IS_PART ? mha__list_add(&file->allocator, &listed) : NULL;
        enough = enough && (shown || joining->is[i] == MHA_IS_PART);
        if (!shown)
            continue;
        *shown = *entry_at(file, i);
        if (joining->is[i] == MHA_IS_CODES) {
            shown->tensor = packed->tensor;
            shown->packing = packed++->packing;
        }
        shown->tensor.index = listed.count - 1;
    }
    for (size_t i = 0; enough && i < listed.count; i++) {
        mha__packing *packing = &((mha__entry *)listed.items)[i].packing;
        for (int p = 0; packing->kind && p < MHA_PARTS; p++)
            if (packing->parts[p] != SIZE_MAX)
                packing->parts[p] = numbers[packing->parts[p]];
    }
    for (size_t i = 0; enough && i < file->parts.count; i++)
        ((mha__entry *)file->parts.items)[i].tensor.index = listed.count + i;
    mha__release(&file->allocator, numbers, count * sizeof *numbers);
    if (!enough) {
        mha__list_release(&file->allocator, &listed);
        return mha__file_no_memory(file, error);
    }
    mha__list_release(&file->allocator, &file->entries);
    file->entries = listed;
    return MHA_OK;
}

void mha__joining_release(const mha_file *file, mha__joining *joining)
{
    mha__list_release(&file->allocator, &joining->found);
    mha__release(&file->allocator, joining->is, joining->count + 1);
}
