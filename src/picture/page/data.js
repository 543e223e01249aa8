/* Reads the data of the page: inflates it, and gives each array of numbers by its index. */
'use strict';

const LEVEL = { steps: 252, decades: 6, nan: 254, hidden: 255 };

/* In place of a weight: the key is hidden from every query of the cell. */
const HIDDEN = -Infinity;

/* The weight that each level stands for. */
const LEVELS = Float64Array.from({ length: 256 }, (_, level) =>
  level === LEVEL.hidden ? HIDDEN : level === LEVEL.nan ? NaN : level === 0 ? 0
    : 10 ** (LEVEL.decades * ((level - 1) / LEVEL.steps - 1)));

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/* A text without what would control its line or change its direction. */
const harmless = (text) => text.replace(
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, '\ufffd');

/* The description that page_data.c wrote, its texts harmless; its `numbers(index)` gives an array, or null for index -1. */
async function readData() {
  const packed = bytesOfBase64(document.getElementById('data').textContent);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const buffer = await new Response(stream).arrayBuffer();
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)),
    (_, value) => (typeof value === 'string' ? harmless(value) : value));
  const kinds = { f64: Float64Array, f32: Float32Array, level: Uint8Array, u32: Uint32Array, bytes: Uint8Array };
  let at = 8 + length;
  const arrays = data.pieces.map(([type, count]) => {
    const numbers = new kinds[type](buffer, at, count);
    at += Math.ceil(numbers.byteLength / 8) * 8;
    return { type, numbers };
  });
  data.numbers = (index) => {
    if (index < 0) return null;
    const array = arrays[index];
    if (array.type === 'level') { /* read when it is first asked for */
      const levels = array.numbers, numbers = array.numbers = new Float64Array(levels.length);
      for (let i = 0; i < levels.length; i++) numbers[i] = LEVELS[levels[i]];
      array.type = 'f64';
    }
    return array.numbers;
  };
  data.isRounded = data.pieces.some(([type]) => type === 'level');
  data.layers.forEach((layer, l) => layer.heads.forEach((head) => { head.layer = layer; head.layerIndex = l; }));
  return data;
}

/* A number as text: six digits; words for what is none. */
function textOf(x) {
  if (x === null || Number.isNaN(x)) return 'NaN';
  if (x === Infinity) return '∞';
  if (x === -Infinity) return '−∞';
  if (x === 0) return '0';
  const size = Math.abs(x);
  return (size < 1e-4 || size >= 1e6 ? x.toExponential(4).replace(/\.?0+e/, 'e') : String(Number(x.toPrecision(6)))).replace('-', '−');
}
