#!/bin/sh
# Opens pages of --picture in Chromium, without a window, and drives them (drive.js); then all of them in Firefox, too,
# where that is installed (open_pages.py).
# test_page.sh PROGRAM FOLDER [NAME]: one page alone.
set -eu

mha=$1
folder=$2
only=${3:-}
here=$(dirname "$0")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    echo "test-page: skipped: there is no chromium (make deps-dev)"
    exit
fi
mkdir -p "$folder"
failed=0
driven=

# drive NAME OPTION...: makes a page of mha show, to be opened with the driver.
drive() {
    name=$1
    shift
    drive_of "$name" show "$@"
}

# drive_of NAME COMMAND OPTION...: the same of another command, whose answer may be no.
drive_of() {
    name=$1
    shift
    [ -z "$only" ] || [ "$only" = "$name" ] || return 0
    "$mha" "$@" --quiet --picture "$folder/$name.html" || [ $? = 1 ]
    {
        sed '/^<\/body>/,$d' "$folder/$name.html"
        echo '<script>'
        cat "$here/drive.js"
        echo '</script></body></html>'
    } >"$folder/$name.driven.html"
    driven="$driven $folder/$name.driven.html"
}

printf '%s\n' '<b>bold</b>' '</script><script>alert(1)</script>' '&amp;' '" onload="x' "$(printf '\342\200\256')" \
    f g h i j k l >"$folder/tokens"
model="--weights weights/lookup/model.safetensors --heads 6 --input weights/lookup/recorded.safetensors:input"
shape="--d-model 16 --heads 4 --seq 9"

drive trained $model --causal --tokens "$folder/tokens"
drive second_row $model --batch 1
drive one_token --d-model 4 --heads 1 --seq 1
drive cross $shape --kv-seq 13 --no-bias
drive groups --d-model 64 --heads 32 --kv-heads 8 --seq 24 --rope half --softcap 3 --window 5,0
drive interleaved $shape --rope interleaved --alibi --scale 0.7
drive ragged $shape --cu-seqlens 0,3,3,9
drive empty_rows $shape --lengths 0 --empty-rows nan
drive parts $shape --rows 3:8 --keys 1:7 --head 2 --causal
drive recorded tests/vectors/torch_causal.safetensors
drive sinks tests/vectors/flex_sinks.safetensors
drive learned_rows tests/vectors/torch_bias_kv_zero_attn_padding.safetensors
"$mha" forward --quiet --d-model 48 --heads 12 --seq 64 --causal --trace "$folder/layer.safetensors"
layer="$folder/layer.safetensors"
drive layers $layer $layer $layer $layer $layer $layer $layer $layer $layer $layer $layer $layer
"$mha" forward --quiet --d-model 48 --heads 12 --seq 128 --causal --trace "$folder/longer.safetensors"
layer="$folder/longer.safetensors"
drive many_heads $layer $layer $layer $layer $layer $layer $layer $layer $layer $layer $layer $layer
drive two_layers weights/induction/recorded.safetensors --tokens weights/induction/tokens.txt
drive decoding tests/vectors/onnx_past_causal.safetensors
for rule in prefix chunked chunked_both_ways prefix_chunked window_keep; do
    drive mask_$rule tests/vectors/mask_$rule.safetensors --batch 1
done
for part in segments query_padding lists blocks; do
    drive pattern_$part tests/vectors/pattern_$part.safetensors
done
"$mha" forward --quiet --d-model 16 --heads 2 --seq 6 --rope half --rope-dim 4 --save-case "$folder/case.safetensors"
python3 - "$folder/case.safetensors" "$folder/last_features.safetensors" <<'END'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header["__metadata__"].update(rope_last="1", rope_attention_factor="1.5")
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
END
for group in rows masks left_out; do
    # shellcheck disable=SC2046
    drive walk_$group $(python3 "$here/walk_cases.py" "$folder" $group) --batch 1
done
drive last_features "$folder/last_features.safetensors"
drive one_head --d-model 64 --heads 16 --seq 64 --head 3 --rope half
drive left_out --seq 4 --head 2
drive long --d-model 8 --heads 1 --seq 16384 --causal
drive many_cells --d-model 64 --heads 32 --seq 1024 --causal --path fast
drive_of checked check weights/lookup/wrong_port.safetensors
drive_of passed check tests/vectors/flex_sinks.safetensors
drive_of diagnosed diagnose weights/lookup/wrong_port.safetensors
drive_of compared compare "$folder/layer.safetensors" weights/lookup/recorded.safetensors
drive_of one_tensor compare weights/lookup/recorded.safetensors:output weights/lookup/recorded.safetensors:input
drive stage weights/induction/recorded.safetensors --stage masked
drive stage_of_a_run $shape --stage q --rope half
# The folder has no blanks in its name.
# shellcheck disable=SC2086
python3 "$here/open_pages.py" chromium "$browser" $driven || failed=1
firefox=$(command -v firefox-esr || command -v firefox || true)
if [ -n "$firefox" ]; then
    # shellcheck disable=SC2086
    python3 "$here/open_pages.py" firefox "$firefox" $driven || failed=1
else
    echo "test-page: in Firefox: skipped: there is none (make deps-dev)"
fi
exit $failed
