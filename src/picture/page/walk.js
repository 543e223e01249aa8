/* The walk: a layer's numbers from x to the output, for one query, one key and one head; each number with the numbers
 * that it comes from. */

/* Most numbers of a row that are shown at a time; side of a small matrix in pixels. */
const WALK = { numbers: 32, side: 120 };

/* The number that is explained: an array's name, row and column. */
let explained = null;

/* ---------------------------------------------------------------- panels */

const NORM_TEXT = ['Features are divided by the root of their mean square.',
  'The mean of the features is taken away; they are divided by the root of their mean square about it.',
  'Features are divided by the root of the sum of their squares.'];
const STEP_TEXT = { turned: 'Pairs of features are turned by an angle that grows with the position.',
  scaled: 'Queries are scaled by position.' };

/* The rows of queries and keys on their way to the scores, and what is done with them. */
function stepsPanel(w, own) {
  const steps = [...stepsOf(w, 'q'), ...stepsOf(w, 'k')], texts = [...new Set(steps.map(([step]) => STEP_TEXT[step]
    ?? NORM_TEXT[w.walk.settings.norm_kind]))];
  const passed = (side, row, last) => [...stepsOf(w, side).slice(0, -1).map(([, , to]) => [to, row]),
    [`${side}_rot`, last]];
  return ['norm and rotation', texts.join(' ') || 'Nothing is normalised or rotated here.', [...passed('q', w.i, w.i),
    ...passed('k', own, w.j), ...(w.has('query_scale') ? [['query_scale', w.i]] : [])]];
}

/* The panels, in the order of the stages: a title, what happens, the rows that are shown, and a weight. Eleven, and one
 * more for latents and for a gate each. */
function panelsOf(w) {
  const { layer, i, j } = w, { past, rows: { kvRank, absorbed } } = w.walk, own = j - past;
  const group = layer.kvHeads < layer.h ? `, which ${layer.h / layer.kvHeads} heads share` : '';
  const view = 'The head’s columns are a view of the whole, not a matrix of their own.';
  const keys = `Key/value head ${w.kv}${group}.`;
  const latents = ['latents = x W_QA, x W_KVA', 'From these, after a norm, queries and keys are made.',
    [['q_latent', i], ['q_latent_normed', i], ['kv_latent', own], ['kv_latent_normed', own]], 'W_KVA'];
  const why = whyHidden(w, i, j), { softcap } = w.walk.settings;
  return [
    ['x', 'The inputs: a row for each token.', [['x_q', i], ['x_k', own]]],
    ...(kvRank ? [latents] : []),
    [`q = ${w.knows('q_latent') ? 'latent' : 'x'} W_Q + b_Q`, view, [...(absorbed ? [['q_wide', i]] : []), ['q', i]],
      'W_Q'],
    kvRank ? ['k = [latent W_KVB, k_r]', absorbed ? 'All heads share the latent.' : view, [['k', own]], 'W_KVB']
      : ['k = x W_K + b_K', keys, [['k', own]], 'W_K'],
    kvRank ? ['v = latent W_KVB', absorbed ? 'All heads share the latent.' : view, [['v', j]], 'W_KVB']
      : ['v = x W_V + b_V', keys, [['v', j]], 'W_V'],
    stepsPanel(w, own),
    ['scores = scale · q kᵀ', `One number for each query and key; d_k = ${layer.d_k}.`, [['scores', i]]],
    ['softcap', softcap > 0 ? `Scores stay within ±${textOf(softcap)}.` : 'None here.', [['capped', i]]],
    ['hide and add', why ? `Key ${j} is hidden: ${why}.` : `Query ${i} sees key ${j}.`, [['masked', i]]],
    [w.walk.settings.normaliser ? 'sigmoid' : 'softmax', w.walk.settings.normaliser ? 'Each score becomes a weight.'
      : 'Each row becomes weights.', [['weights', i]]],
    ['heads = weights · v', 'Each head writes its own columns: that is the concatenation.',
      [...(absorbed ? [['mixed', i]] : []), ['heads', i]]],
    ...(w.knows('gated') ? [['gated = heads · sigmoid(x W_G + b_G)', 'The gate lets a share of each head through.',
      [['gate', i], ['gated', i]], 'W_G']] : []),
    [`output = ${w.knows('gated') ? 'gated' : 'heads'} W_O + b_O`, 'Head and head meet here: the head’s rows of W_O.',
      [['output', i]], 'W_O'],
  ].map(([title, text, rows, weight]) => ({ title,
    text: [text, weight && w.knows(weight) && !w.has(weight) && `${weight} is left out: too many numbers for a page.`,
      rows.some(([, row]) => row < 0) && 'The key is from the cache.'].filter(Boolean).join(' '),
    rows: rows.filter(([name, row]) => w.has(name) && row >= 0),
    weight: weight && w.has(weight) ? weight : null }));
}

/* A matrix as a small picture, with the head's part and the row framed. */
function matrixPicture(w, name, row, isWeight) {
  const { rows, columns } = w.array(name), colours = data.numbers(data.diverging);
  const canvas = document.createElement('canvas');
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d'), image = context.createImageData(columns, rows);
  let most = 0;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) if (Number.isFinite(w.at(name, r, c))) most = Math.max(most, Math.abs(w.at(name, r, c)));
  }
  for (let r = 0, i = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++, i++) {
      const x = w.at(name, r, c);
      if (!Number.isFinite(x)) continue;
      const at = 3 * Math.round(127.5 + 127.5 * x / (most || 1));
      image.data.set([colours[at], colours[at + 1], colours[at + 2], 255], 4 * i);
    }
  }
  context.putImageData(image, 0, 0);
  const cell = Math.min(WALK.side / Math.max(rows, columns), 10), width = cell * columns, height = cell * rows;
  const [from, to] = sliceOf(w, name), part = rows / w.layer.h;
  const frame = name === 'W_O' ? [0, w.h * part, columns, part] : isWeight ? [from, 0, to - from, rows]
    : [from, row, to - from, 1];
  const [x, y, fw, fh] = frame.map((n) => n * cell);
  const picture = svg('svg', { width: width + 4, height: height + 4, viewBox: `-2 -2 ${width + 4} ${height + 4}`,
    role: 'img', 'aria-label': `${name}, ${rows} by ${columns}; framed: ${isWeight ? `head ${w.h}` : `row ${row}`}` });
  picture.append(svg('image', { width, height, href: enlarged(canvas, 2 * WALK.side).toDataURL(), preserveAspectRatio: 'none',
    style: 'image-rendering: pixelated' }), svg('rect', { width, height, fill: 'none', stroke: styleOf('--line') }),
  svg('rect', { x, y, width: fw, height: Math.max(fh, 2), fill: 'none', stroke: styleOf('--mark'), 'stroke-width': 2 }));
  return element('figure', {}, picture, element('figcaption', {}, `${name} (${rows}, ${columns})`, element('br', {}),
    `colours to ±${textOf(Number(most.toPrecision(3)))}`));
}

const shortText = (x) => textOf(Number.isFinite(x) ? Number(x.toPrecision(4)) : x);

function numberButton(w, place, text) {
  const [name, r, c] = place;
  const button = element('button', { type: 'button', class: 'number', title: `${name}[${r}, ${c}]` },
    text ?? shortText(w.at(name, r, c)));
  button.setAttribute('aria-label', `${name} row ${r} column ${c}: ${textOf(w.at(name, r, c))}`);
  button.setAttribute('aria-pressed', String(explained) === String(place));
  button.addEventListener('click', () => {
    explained = String(explained) === String(place) ? null : place; /* a second click closes it */
    drawWalk();
    const shown = document.querySelector('#walk .number[aria-pressed="true"]');
    shown?.scrollIntoView({ block: 'nearest' });
    shown?.focus({ preventScroll: true });
  });
  return button;
}

/* Numbers of a row: the head's part, at most so many, among them that of key j. */
function rowOf(w, name, row) {
  let [from, to] = sliceOf(w, name);
  const all = to - from;
  if (all > WALK.numbers && BY_HEAD.has(name)) from = Math.max(0, Math.min(w.j - WALK.numbers / 2, to - WALK.numbers));
  to = Math.min(to, from + WALK.numbers);
  const numbers = [];
  for (let c = from; c < to; c++) numbers.push(numberButton(w, [name, row, c]));
  const part = to - from < all ? `, columns ${from} to ${to - 1} of ${all}` : '';
  return element('div', { class: 'row' }, element('span', { class: 'help' }, `${name}, row ${row}${part}`),
    element('div', { class: 'numbers' }, ...numbers));
}

function panel(w, { title, text, rows, weight }, index) {
  const pictures = rows.map(([name, row]) => matrixPicture(w, name, row, false));
  if (weight) pictures.unshift(matrixPicture(w, weight, 0, true));
  return element('article', { class: 'panel' }, element('h3', {}, `${index + 1}. ${title}`),
    element('p', { class: 'help' }, text), element('div', { class: 'pictures' }, ...pictures),
    ...rows.map(([name, row]) => rowOf(w, name, row)));
}

/* ---------------------------------------------------------------- the sum and the parameters */

function drawSum(w) {
  $('walk-sum').hidden = !explained;
  if (!explained) return;
  const [name, r, c] = explained, { text, terms, inputs, total } = explain(w, explained);
  let sum = 0;
  const rows = terms.map((term) => {
    sum += term.value;
    const factors = term.from.flatMap((place, n) => [n ? ' × ' : '', numberButton(w, place)]);
    return element('tr', {}, element('td', {}, ...factors, term.times ? ` · ${term.times}` : '', term.then ?? ''),
      element('td', {}, shortText(term.value)), element('td', {}, textOf(sum)));
  });
  const head = element('tr', {}, ...['from', 'term', 'sum so far'].map((t) => element('th', { scope: 'col' }, t)));
  const parts = [element('h3', {}, `${name}[${r}, ${c}] = ${textOf(w.at(name, r, c))}`), element('p', {}, text)];
  if (inputs) parts.push(element('p', {}, 'From ', ...inputs.map((place) => numberButton(w, place))));
  if (rows.length) {
    parts.push(element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows)));
  }
  $('walk-sum').replaceChildren(...parts);
  $('walk-sum').dataset.total = total;
}

/* The weights in the order of the equation, and each head's part of them. */
const PARAMETERS = ['W_QA', 'b_QA', 'qa_norm', 'W_Q', 'b_Q', 'W_KVA', 'b_KVA', 'kva_norm', 'W_KVB', 'W_K', 'b_K',
  'W_V', 'b_V', 'bias_k', 'bias_v', 'sinks', 'q_norm', 'q_norm_bias', 'k_norm', 'k_norm_bias', 'bias_table', 'W_G', 'b_G',
  'W_O', 'b_O'];

function partOf(w, name, h, kv) {
  const { rows, columns } = w.array(name);
  if (name === 'W_O') return `(${rows / h}, ${columns})`;
  if (name === 'sinks' || name === 'bias_table') return rows === 1 ? '(1)' : `(${rows})`;
  const heads = /^([Wb]_[QG]|W_KVB)$/.test(name) ? h : /^([Wb]_[KV]|bias_[kv])$/.test(name) ? kv : 0;
  return !heads ? '' : rows === 1 ? `(${columns / heads})` : `(${rows}, ${columns / heads})`;
}

/* Whether another number of heads, of the same width together, would leave all counts as they are. */
function isFree(w) {
  const byRow = ['q_norm', 'q_norm_bias', 'k_norm', 'k_norm_bias'].every((name) => !w.knows(name)
    || (w.array(name).rows === 1 && w.array(name).columns === w.array(name[0]).columns));
  return w.layer.kvHeads === w.layer.h && !w.walk.rows.kvRank && !w.knows('sinks') && !w.knows('bias_table') && byRow
    && (!w.knows('W_G') || w.array('W_G').columns === w.array('heads').columns);
}

function drawParameters(w) {
  const names = PARAMETERS.filter(w.knows), choices = [];
  const { h, kvHeads } = w.layer, width = w.knows('W_Q') ? w.array('W_Q').columns : 0;
  for (let n = 1; n <= width; n++) if (width % n === 0 && w.array('W_O').rows % n === 0) choices.push(n);
  const slider = $('walk-heads'), fixed = !isFree(w) || choices.length === 0;
  $('walk-slider').hidden = fixed;
  slider.max = Math.max(0, choices.length - 1);
  const chosen = fixed ? h : choices[Math.min(Number(slider.value), choices.length - 1)];
  const many = fixed ? [h, kvHeads] : [chosen, chosen];
  let total = 0;
  const rows = names.map((name) => {
    const array = w.array(name), count = array.rows * array.columns;
    total += count;
    return [name, array.rows === 1 ? `(${array.columns})` : `(${array.rows}, ${array.columns})`, partOf(w, name, ...many),
      count.toLocaleString('en')];
  });
  rows.push(['total', '', '', total.toLocaleString('en')]);
  $('walk-parameters').tBodies[0].replaceChildren(...rows.map((row) => element('tr', {},
    ...row.map((text, n) => element(n ? 'td' : 'th', n ? {} : { scope: 'row' }, text)))));
  $('walk-heads-text').textContent = `${chosen} heads, each ${width / chosen} wide${chosen === h ? ' (this layer)' : ''}: `
    + `${total.toLocaleString('en')} parameters${chosen === h ? '' : ', the same total'}. More heads are narrower slices of `
    + 'the same matrices.';
  return choices.indexOf(h);
}

/* ---------------------------------------------------------------- drawing */

function drawWalk() {
  const head = chosenHead(), { walk } = head.layer;
  const here = typeof walk === 'object' && walk.sequence === head.sequence && head.head >= walk.firstHead
    && head.head < walk.firstHead + walk.heads && head.poolRows * head.poolColumns === 1;
  for (const part of ['walk-body', 'parameters-section']) $(part).hidden = !here;
  $('walk-note').textContent = here ? 'Every number is the layer’s own, in float64. The query and the key are those of '
    + 'the cell chosen above. Maps: blue is negative, brown is positive; frames mark the head’s part. Click a number to see '
    + 'how it was computed.' : typeof walk === 'string' && walk ? walk
    : 'This page has only attention weights. For the inputs and every step, run “mha show --weights FILE --layer NAME '
      + '--input FILE”.';
  if (!here) return;
  const w = walkAt(head, head.firstQuery + state.row, head.firstKey + state.column);
  w.j = Math.min(w.j, w.array('k_rot').rows - 1);
  $('walk').replaceChildren(...panelsOf(w).map((p, index) => panel(w, p, index)));
  drawSum(w);
  const present = drawParameters(w);
  if ($('walk-heads').dataset.set !== 'yes') {
    $('walk-heads').value = present;
    $('walk-heads').dataset.set = 'yes';
    drawParameters(w);
  }
}
