# bash completion of mha, written by "mha completion bash"
_mha_files() {
  compopt -o filenames 2>/dev/null
  COMPREPLY=($(compgen -f -- "$word"))
}
_mha() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= words=
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    words='forward params heads show check compare diagnose power claims bench info completion
      help --help --version'
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]}:$before in
  help:help) words='forward params heads show check compare diagnose power claims bench info completion
      inert storage derived stage paths masks ranks architectures case variants' ;;
  completion:completion) words='bash zsh fish' ;;
  *:--d-model) return ;;
  forward:--heads|params:--heads|show:--heads|check:--heads|diagnose:--heads|power:--heads) return ;;
  heads:--heads) return ;;
  *:--kv-heads) return ;;
  *:--d-k) return ;;
  *:--d-v) return ;;
  *:--d-q) return ;;
  *:--kdim) return ;;
  *:--vdim) return ;;
  *:--d-out) return ;;
  forward:--batch|params:--batch|heads:--batch|power:--batch|bench:--batch) return ;;
  show:--batch) return ;;
  forward:--seq|heads:--seq|show:--seq|power:--seq) return ;;
  *:--kv-seq) return ;;
  *:--preset) words='
      list albert-base-v2 beit-base-patch16-224 bert-base-cased bert-base-uncased bert-large-uncased
      clip-vit-base-patch32 deberta-base deberta-v3-base deepseek-v3 distilbert-base-uncased
      falcon-7b gemma-2-2b gemma-2b gemma-7b gpt2 gpt2-large gpt2-medium gpt2-xl llama-13b
      llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-7b mistral-7b-v0.1 mistral-7b-v0.3
      mistral-nemo-12b mixtral-8x7b-v0.1 modernbert-base mpnet-base phi-3-mini-4k qwen2-0.5b qwen2-7b
      qwen3-0.6b qwen3-8b roberta-30522 roberta-base roberta-large swin-tiny-patch4-window7-224
      swinv2-tiny-patch4-window8-256 t5-11b t5-3b t5-base t5-large t5-small transformer-base
      transformer-big umt5-small vit-base-patch16-224 whisper-large-v3' ;;
  *:--config) _mha_files; return ;;
  *:--architecture) _mha_files; return ;;
  *:--class) return ;;
  forward:--dtype|params:--dtype|heads:--dtype|show:--dtype|power:--dtype) words='
      f32 f64 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4
      f8_e4m3_scaled f8_e5m2_scaled' ;;
  bench:--dtype) words='
      f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4
      f8_e4m3_scaled f8_e5m2_scaled' ;;
  compare:--dtype) words='
      q8_0 q4_0' ;;
  *:--cache-dtype) words='
      f32 f16 bf16 i8' ;;
  params:--seq|bench:--seq) return ;;
  *:--encoder-seq) return ;;
  *:--ranks) return ;;
  *:--machine) return ;;
  *:--weights) _mha_files; return ;;
  *:--layer) return ;;
  *:--orientation) words='
      in-out out-in' ;;
  *:--input) _mha_files; return ;;
  *:--key-input) _mha_files; return ;;
  *:--value-input) _mha_files; return ;;
  *:--seed) return ;;
  *:--position-offset) return ;;
  *:--key-offset) return ;;
  *:--window) return ;;
  *:--scale) return ;;
  *:--softcap) return ;;
  *:--rope) words='
      interleaved half' ;;
  *:--rope-dim) return ;;
  *:--rope-base) return ;;
  *:--mask) _mha_files; return ;;
  *:--mask-kind) words='
      additive keeps hides' ;;
  *:--lengths) return ;;
  *:--empty-rows) words='
      zero nan' ;;
  *:--hidden-values) words='
      ignore propagate' ;;
  *:--sigmoid) return ;;
  *:--sinks) _mha_files; return ;;
  *:--cu-seqlens) return ;;
  *:--expected) _mha_files; return ;;
  *:--rtol) return ;;
  *:--atol) return ;;
  *:--nmse) return ;;
  *:--cosine) return ;;
  check:--precision|diagnose:--precision|power:--precision) words='
      f32 f16 bf16' ;;
  forward:--precision|bench:--precision) words='
      f32 f16 bf16' ;;
  *:--suggest) _mha_files; return ;;
  *:--with) return ;;
  *:--kind) words='
      mha sdpa' ;;
  *:--shape) words='
      list tiny16 bert1x128 bert8x128 bert1x512 bert8x512 gpt2_1024 llama512 llama3_1024 long8192
      cross decode2048 decode8x4096 vit197 llama2048 long16384 width40 width80 width96 width128
      width256 tiny8 bert1x127 decode2047 few4x2047 few8x127 few8x2047 mask2048 docs8x256' ;;
  *:--part) words='
      all both layer core proj' ;;
  *:--rounds) return ;;
  *:--seconds) return ;;
  *:--tensor) return ;;
  *:--stage) words='
      q k v q_rot k_rot scores capped masked weights weights_mean heads output present_key
      present_value lse q_latent kv_latent gated' ;;
  *:--group) words='
      role layer dtype part' ;;
  *:--depth) return ;;
  *:--only) words='
      attention ffn norm embedding head' ;;
  *:--sort) words='
      elements name' ;;
  *:--format) words='
      table json csv markdown' ;;
  *:--head) return ;;
  *:--query) return ;;
  *:--rows) return ;;
  *:--keys) return ;;
  *:--tokens) _mha_files; return ;;
  forward:--picture|show:--picture|check:--picture|compare:--picture|diagnose:--picture) _mha_files; return ;;
  params:--picture) _mha_files; return ;;
  bench:--picture) _mha_files; return ;;
  *:--output) _mha_files; return ;;
  *:--trace) _mha_files; return ;;
  *:--save-case) _mha_files; return ;;
  *:--path) words='
      auto fast blas exact' ;;
  *:--isa) words='
      auto avx512_bf16 avx512 avx2 neon scalar' ;;
  *:--threads) return ;;
  *:--jobs) return ;;
  esac
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]} in
  forward) options='
      --d-model --heads --kv-heads --d-k --d-v --d-q --kdim --vdim --d-out --bias --no-bias --batch
      --seq --kv-seq --merged-qk --preset --config --dtype --cache-dtype --weights --layer
      --orientation --input --key-input --value-input --seed --causal --position-offset --key-offset
      --window --scale --softcap --rope --rope-dim --rope-base --mask --mask-kind --lengths
      --empty-rows --hidden-values --alibi --sigmoid --sinks --cu-seqlens --precision --stage --head
      --query --picture --output --trace --save-case --json --quiet --help --path --isa --threads
      --no-pack' ;;
  params) options='
      --d-model --heads --kv-heads --d-k --d-v --d-q --kdim --vdim --d-out --bias --no-bias --batch
      --merged-qk --preset --config --architecture --class --dtype --seq --encoder-seq --ranks
      --machine --weights --group --depth --only --sort --all --per-head --format --picture --json
      --quiet --help' ;;
  heads) options='
      --d-model --heads --kv-heads --d-k --d-v --d-q --kdim --vdim --d-out --bias --no-bias --batch
      --seq --kv-seq --preset --config --architecture --class --dtype --run --seed --causal --json
      --quiet --help --path --isa --threads' ;;
  show) options='
      --d-model --heads --kv-heads --d-k --d-v --d-q --kdim --vdim --d-out --bias --no-bias --batch
      --seq --kv-seq --preset --config --dtype --weights --layer --orientation --input --key-input
      --value-input --seed --causal --position-offset --key-offset --window --scale --softcap --rope
      --rope-dim --rope-base --mask --mask-kind --lengths --empty-rows --hidden-values --alibi
      --sigmoid --sinks --cu-seqlens --stage --head --query --rows --keys --tokens --picture --log
      --json --quiet --help --path --isa --threads' ;;
  check) options='
      --heads --kv-heads --d-k --config --weights --layer --orientation --input --key-input
      --value-input --causal --position-offset --key-offset --window --scale --softcap --rope
      --rope-dim --rope-base --mask --mask-kind --lengths --empty-rows --hidden-values --alibi
      --sigmoid --sinks --cu-seqlens --expected --precision --stage --picture --json --quiet --help
      --path --isa --threads --jobs' ;;
  compare) options='
      --dtype --rtol --atol --picture --json --quiet --help' ;;
  diagnose) options='
      --heads --kv-heads --d-k --config --weights --layer --orientation --input --key-input
      --value-input --causal --position-offset --key-offset --window --scale --softcap --rope
      --rope-dim --rope-base --mask --mask-kind --lengths --empty-rows --hidden-values --alibi
      --sigmoid --sinks --cu-seqlens --expected --precision --tensor --stage --picture --json --quiet
      --help --threads' ;;
  power) options='
      --d-model --heads --kv-heads --d-k --d-v --d-q --kdim --vdim --d-out --bias --no-bias --batch
      --seq --kv-seq --preset --config --dtype --weights --layer --orientation --input --key-input
      --value-input --seed --causal --position-offset --key-offset --window --scale --softcap --rope
      --rope-dim --rope-base --mask --mask-kind --lengths --empty-rows --hidden-values --alibi
      --sigmoid --sinks --cu-seqlens --rtol --atol --nmse --cosine --precision --suggest --with
      --kind --stage --json --quiet --help --threads' ;;
  claims) options='
      --json --quiet --help' ;;
  bench) options='
      --batch --preset --config --architecture --dtype --cache-dtype --seq --precision --shape --part
      --rounds --seconds --csv --picture --json --quiet --help --path --isa --threads --no-pack' ;;
  info) options='
      --json --quiet --help --isa' ;;
  completion) options='
      --help' ;;
  esac
  case $word:${COMP_WORDS[1]} in
  -*) ;;
  *:show) _mha_files; return ;;
  *:check) _mha_files; return ;;
  *:compare) _mha_files; return ;;
  *:diagnose) _mha_files; return ;;
  *:power) _mha_files; return ;;
  esac
  COMPREPLY=($(compgen -W "$options" -- "$word"))
}
complete -F _mha mha
