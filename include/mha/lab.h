/* The laboratory, libmha-lab: files, models, cases, known bugs, the conformance suite, layers in parts. Includes mha.h,
 * and may change with every minor version.
 *
 * One header for each noun: file (safetensors, npy, npz, GGUF), model (public checkpoints), split, split_time (a layer
 * shared by several processes; how long that takes), compare (the difference of two results, the error bound), case
 * (case files, check, diagnosis), gradients (error bounds, known bugs), positions (frequencies and tables of rotations,
 * slopes, segments of windows), power (known bugs that a tolerance accepts), conform (test cases for any kernel, and
 * their results).
 *
 * The library uses functions of the libmha of the same version that are not public: the two are installed together, and
 * the loader refuses a libmha of another version. It has no state of its own. */
#ifndef MHA_LAB_H
#define MHA_LAB_H

#include "mha/case.h"
#include "mha/compare.h"
#include "mha/conform.h"
#include "mha/file.h"
#include "mha/gradients.h"
#include "mha/mha.h"
#include "mha/model.h"
#include "mha/positions.h"
#include "mha/power.h"
#include "mha/split.h"
#include "mha/split_time.h"

#endif
