/* The page: the overview of heads, one head, and what was chosen, which the address keeps. */

const $ = (id) => document.getElementById(id);

/* Orders of the overview: the key of a statistic, its title, what it means, and the unit of what is no share. */
const ORDERS = [
  ['place', 'layer and head', 'As the layers compute them.'],
  ['entropy', 'entropy', 'In bits: 0 looks at one key, log2(n) at n keys alike. Most decided first.', 'bits'],
  ['distance', 'distance', 'Mean number of tokens between a query and the keys it looks at. Nearest first.', 'tokens'],
  ['self', 'own key', 'Weight of the key at the query’s own position. Largest first.'],
  ['previous', 'previous key', 'Weight of the key one position before. Largest first.'],
  ['first', 'key 0', 'Weight of the first key. Largest first.'],
  ['sink', 'no key', 'Share of the softmax that no token has: sinks, extra rows. Largest first.'],
  ['largest', 'largest weight', 'Mean of each query’s largest weight. Largest first.'],
];
const ASCENDING = new Set(['entropy', 'distance']);

/* The reader's choices; the part of the address after # keeps them. */
const state = { layer: 0, index: 0, scale: 'linear', order: 'place', sequence: 0, row: 0, column: 0 };
let data;

const chosenHead = () => data.layers[state.layer].heads[state.index];

/* The batch rows or sequences that have heads here. */
const sequencesOf = ({ layers }) => [...new Set(layers.flatMap((l) => l.heads.map((head) => head.sequence)))];

function readAddress() {
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    if (key in state) state[key] = typeof state[key] === 'number' ? Math.max(0, parseInt(value, 10) || 0) : value;
  }
  if (data.layers.length === 0) return;
  state.layer = Math.min(state.layer, data.layers.length - 1);
  state.index = Math.min(state.index, data.layers[state.layer].heads.length - 1);
  if (![...$('scale').options].some((o) => o.value === state.scale)) state.scale = 'linear';
  if (!sequencesOf(data).includes(state.sequence)) state.sequence = chosenHead().sequence;
  if (!ORDERS.some(([key]) => key === state.order)) state.order = 'place';
}

function writeAddress() {
  history.replaceState(null, '', `#${new URLSearchParams(state)}`);
}

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const factsList = (facts) => element('dl', {},
  ...facts.flatMap(([term, fact]) => [element('dt', {}, term), element('dd', {}, fact)]));

/* Rows and columns that a key moves a cell by. */
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/* ---------------------------------------------------------------- the overview */

const statisticText = (x, unit) => (x === null ? '–' : `${x.toFixed(3)}${unit ? `\u00a0${unit}` : ''}`);

/* The maps of the overview, which another order does not draw again. */
const miniatures = { drawn: '', of: new Map() };

function miniatureOf(head) {
  const drawn = `${state.scale} ${isDark()}`;
  if (miniatures.drawn !== drawn) miniatures.of.clear();
  miniatures.drawn = drawn;
  if (!miniatures.of.has(head)) {
    const weights = data.numbers(head.weights);
    miniatures.of.set(head, pixelsOf(head, weights, scaleOf(state.scale, head, weights), data.numbers(data.sequential)));
  }
  return miniatures.of.get(head);
}

function thumbnailOf(head, ofRow) {
  const canvas = miniatureOf(head);
  const room = (document.body.clientWidth - 32) / ofRow - 16;
  const side = Math.min(160, Math.max(82, room)), most = Math.max(canvas.width, canvas.height);
  canvas.style.width = `${Math.max(12, side * canvas.width / most)}px`;
  canvas.style.height = `${Math.max(12, side * canvas.height / most)}px`;
  canvas.className = 'hatched';
  const [key, title, , unit] = ORDERS.find(([order]) => order === state.order);
  const value = key === 'place' ? '' : statisticText(head.statistics[key], unit);
  const label = `${nameOf(head)}${value && `: ${title} ${value}`}`;
  const name = state.order === 'place' || data.layers.length === 1 ? `head ${head.head}`
    : `${head.layerIndex}: head ${head.head}`;
  const button = element('button', { type: 'button', class: 'thumbnail', 'aria-label': label, title: label },
    canvas, name, ...(value ? [element('br', {}), value] : []));
  button.head = head;
  button.addEventListener('click', () => chooseHead(head));
  return button;
}

function ordered(heads) {
  const sign = ASCENDING.has(state.order) ? 1 : -1;
  const key = (head) => head.statistics[state.order];
  const known = heads.filter((head) => key(head) !== null), others = heads.filter((head) => key(head) === null);
  return [...known.sort((a, b) => sign * (key(a) - key(b))), ...others];
}

function group(title, heads) {
  const row = element('div', { class: 'layer' }, ...(title ? [element('h3', {}, title)] : []));
  row.append(...heads.map((head) => thumbnailOf(head, heads.length)));
  return row;
}

function drawOverview() {
  const shown = (layer) => layer.heads.filter((head) => head.sequence === state.sequence);
  const groups = state.order === 'place'
    ? data.layers.map((layer, l) => group(data.layers.length > 1 || layer.name ? layer.name || `layer ${l}` : '',
      shown(layer)))
    : [group('', ordered(data.layers.flatMap(shown)))];
  $('overview').replaceChildren(...groups);
  $('order-help').textContent = ORDERS.find(([key]) => key === state.order)[2];
  markChosen();
}

function markChosen() {
  for (const button of document.querySelectorAll('.thumbnail')) {
    button.setAttribute('aria-pressed', button.head === chosenHead());
  }
}

/* ---------------------------------------------------------------- one head */

function chooseHead(head) {
  state.layer = head.layerIndex;
  state.index = head.layer.heads.indexOf(head);
  explained = null;
  markChosen();
  drawHead();
}

function noteOf(head) {
  const { statistics, layer } = head, notes = [];
  const pooled = head.poolRows > 1 || head.poolColumns > 1;
  notes.push(`${head.queries} queries, ${head.keys} keys${layer.extra ? ` (the last ${layer.extra} are no tokens)` : ''}.`);
  if (layer.kvHeads < layer.h) notes.push(`It reads key/value head ${head.kvHead} of ${layer.kvHeads}.`);
  if (pooled) {
    notes.push(`A cell shows the largest of ${head.poolRows} × ${head.poolColumns} weights `
      + '(queries × keys); the largest weights of each query are listed exactly.');
  }
  if (data.isRounded) notes.push('Weights of the map are rounded to steps of 5.6 %, those below 1e−6 to 0.');
  if (statistics.empty) notes.push(`${statistics.empty} queries see no key.`);
  if (statistics.broken) notes.push(`${statistics.broken} queries have weights that are NaN or infinite (pink).`);
  if (state.scale === 'rest') {
    const removed = statistics.first + statistics.sink;
    notes.push(pooled ? 'Pooled maps keep key 0.' : `Taken away: ${textOf(removed)} of each query’s weight, on average.`);
  }
  return notes.join(' ');
}

function drawHead() {
  const head = chosenHead();
  const scale = state.scale === 'rest' && (head.poolRows > 1 || head.poolColumns > 1) ? 'linear' : state.scale;
  const weights = data.numbers(head.weights);
  const picture = pictureOf(data, head, weights, scaleOf(scale, head, weights), data.numbers(data.sequential),
    `Weights of ${nameOf(head)}`);
  picture.append(svg('rect', { id: 'cursor', fill: 'none', stroke: styleOf('--mark'), 'stroke-width': 2 }));
  picture.addEventListener('pointermove', (event) => chooseAt(event, picture));
  picture.addEventListener('pointerdown', (event) => chooseAt(event, picture));
  picture.addEventListener('keydown', onKey);
  const focused = $('head-map').contains(document.activeElement);
  $('head-map').replaceChildren(picture);
  if (focused) picture.focus();
  $('head-title').textContent = nameOf(head);
  $('head-note').textContent = noteOf(head);
  $('statistics').tBodies[0].replaceChildren(...ORDERS.slice(1).map(([key, title, help, unit]) => {
    const row = element('tr', { title: help }, element('th', { scope: 'row' }, title),
      element('td', {}, statisticText(head.statistics[key], unit)));
    return row;
  }));
  drawDifference();
  chooseCell(Math.min(state.row, head.rows - 1), Math.min(state.column, head.columns - 1));
}

function chooseAt(event, picture) {
  const cell = cellAt(event, picture, chosenHead());
  if (cell) chooseCell(...cell);
}

/* Names the queries or keys of a row or column: "5 (the)", or with pooling "512 to 515". */
function indexText(head, i, isKey) {
  const pool = isKey ? head.poolColumns : head.poolRows, count = isKey ? head.keys : head.queries;
  const first = (isKey ? head.firstKey : head.firstQuery);
  const from = first + i * pool, to = Math.min(from + pool, first + count) - 1;
  if (pool > 1) return `${from} to ${to}`;
  if (isKey && from >= head.layer.heads[0].keys - head.layer.extra && head.layer.extra) return `${from} (no token)`;
  const token = data.tokens[isKey ? from : from + head.layer.offset];
  return token === undefined ? String(from) : `${from} (${visible(token)})`;
}

function cellFacts(head, row, column) {
  const at = row * head.columns + column, weights = data.numbers(head.weights), w = weights[at];
  const line = weights.subarray(row * head.columns, (row + 1) * head.columns);
  const pooled = head.poolRows > 1 || head.poolColumns > 1;
  const facts = [['query', indexText(head, row, false)], ['key', indexText(head, column, true)]];
  const scores = data.numbers(head.scores), masked = data.numbers(head.masked);
  if (scores && !Number.isNaN(scores[at])) facts.push(['score', textOf(scores[at])]);
  if (masked && !Number.isNaN(masked[at])) {
    const added = masked[at] - scores[at];
    facts.push(['mask', masked[at] === -Infinity ? 'hidden'
      : Number.isNaN(scores[at]) || added === 0 ? 'nothing added' : `${textOf(added)} added`]);
  }
  facts.push(['weight', w === HIDDEN ? 'none: the key is hidden'
    : `${data.isRounded && w > 0 ? 'about ' : ''}${data.isRounded && w > 0 ? w.toPrecision(2) : textOf(w)}${
      pooled ? ', the largest of the cell' : ''}`]);
  if (w !== HIDDEN && !pooled && !Number.isNaN(w)) {
    const seen = line.filter((x) => x !== HIDDEN);
    facts.push(['rank', `${1 + seen.filter((x) => x > w).length} of ${seen.length} keys`]);
  }
  return facts;
}

/* The keys with the largest weights of the first query of a row: [key, weight], largest first. */
function topKeys(head, row) {
  const most = 8;
  if (head.top > 0) {
    const from = row * head.poolRows * head.top;
    const keys = data.numbers(head.topKeys), weights = data.numbers(head.topWeights);
    return Array.from({ length: head.top }, (_, i) => [keys[from + i], weights[from + i]]).filter(([, w]) => w > 0);
  }
  const line = data.numbers(head.weights).subarray(row * head.columns, (row + 1) * head.columns);
  return Array.from(line, (w, c) => [head.firstKey + c, w]).filter(([, w]) => w > 0)
    .sort((a, b) => b[1] - a[1]).slice(0, most);
}

function drawLines(head, row) {
  const top = topKeys(head, row), query = head.firstQuery + row * head.poolRows;
  const height = 18 * Math.max(top.length, 1) + 8, middle = height / 2;
  const name = (i, isKey) => labelOf(data, head, i, isKey);
  const picture = svg('svg', { width: 330, height, viewBox: `0 0 330 ${height}`, role: 'img', 'font-size': 12,
    fill: styleOf('--ink'), 'aria-label': `Keys that query ${query} looks at: ${
      top.map(([key, w]) => `${key} with ${textOf(w)}`).join(', ') || 'none'}` });
  picture.append(svg('text', { x: 92, y: middle, 'text-anchor': 'end', 'dominant-baseline': 'middle' },
    `query ${name(query, false)}`));
  top.forEach(([key, w], i) => {
    const y = 18 * i + 13;
    picture.append(svg('path', { d: `M98 ${middle} C130 ${middle} 130 ${y} 162 ${y}`, fill: 'none',
      stroke: styleOf('--ink'), 'stroke-width': Math.max(0.6, 6 * w), 'stroke-opacity': 0.35 + 0.65 * Math.min(1, w) }),
    svg('text', { x: 168, y, 'dominant-baseline': 'middle' }, `key ${name(key, true)}`),
    svg('text', { x: 328, y, 'text-anchor': 'end', 'dominant-baseline': 'middle', fill: styleOf('--faint') },
      textOf(Number(w.toPrecision(4)))));
  });
  $('lines').replaceChildren(element('p', { class: 'help' }, 'Keys it looks at most'), picture);
}

function chooseCell(row, column) {
  const head = chosenHead(), layout = layoutOf(head);
  if (row < 0 || column < 0) return; /* a head without queries or keys */
  Object.assign(state, { row, column });
  const cursor = $('cursor');
  for (const [key, value] of Object.entries({ x: layout.left + column * layout.cell, y: layout.top + row * layout.cell,
    width: layout.cell, height: layout.cell })) cursor.setAttribute(key, value);
  $('cell').replaceChildren(factsList(cellFacts(head, row, column)));
  drawLines(head, row);
  drawWalk();
  writeAddress();
}

function onKey(event) {
  const head = chosenHead(), { heads } = head.layer;
  const turns = { PageUp: -1, PageDown: 1 };
  if (event.key in MOVES) {
    const [down, right] = MOVES[event.key], clamp = (i, n) => Math.min(Math.max(i, 0), n - 1);
    chooseCell(clamp(state.row + down, head.rows), clamp(state.column + right, head.columns));
  } else if (event.key in turns) {
    chooseHead(heads[(state.index + turns[event.key] + heads.length) % heads.length]);
  } else return;
  event.preventDefault();
}

/* ---------------------------------------------------------------- saving */

function save(blob, ending) {
  const link = element('a', { href: URL.createObjectURL(blob), download: `${nameOf(chosenHead())
    .replace(/[^A-Za-z0-9]+/g, '-')}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function shownAsText() {
  const picture = $('head-map').firstElementChild.cloneNode(true);
  picture.querySelector('#cursor').remove();
  return new XMLSerializer().serializeToString(picture);
}

/* The picture that is shown as a PNG with twice the pixels of the screen. */
function shownAsPng() {
  const picture = $('head-map').firstElementChild, factor = 2, canvas = document.createElement('canvas');
  canvas.width = factor * Number(picture.getAttribute('width'));
  canvas.height = factor * Number(picture.getAttribute('height'));
  const image = new Image();
  return new Promise((resolve, reject) => {
    image.onload = () => {
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(resolve, 'image/png');
    };
    image.onerror = reject;
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(shownAsText())}`;
  });
}

/* ---------------------------------------------------------------- the whole page */

function drawAll() {
  drawSheets();
  for (const part of document.querySelectorAll('.of-heads')) part.hidden = data.layers.length === 0;
  $('difference-section').hidden = true;
  if (data.layers.length === 0) return;
  drawOverview();
  drawHead();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').textContent = isDark() ? 'Light colours' : 'Dark colours';
}

/* Paper is light. */
function printLight() {
  if (!isDark()) return;
  setTheme('light');
  drawAll();
  addEventListener('afterprint', () => {
    setTheme('dark');
    drawAll();
  }, { once: true });
}

function addControls() {
  addEventListener('beforeprint', printLight);
  let width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth !== width) drawAll();
    width = innerWidth;
  });
  $('order').append(...ORDERS.map(([key, title]) => element('option', { value: key }, title)));
  const sequences = sequencesOf(data);
  $('sequence').append(...sequences.map((i) => element('option', { value: i }, String(i))));
  $('sequence-label').hidden = sequences.length < 2;
  $('sheet-map').addEventListener('change', () => {
    sheetState.map = Number($('sheet-map').value);
    drawSheets();
  });
  $('difference-pair').addEventListener('change', drawDifference);
  $('walk-heads').addEventListener('input', drawWalk);
  for (const name of ['scale', 'order', 'sequence']) {
    $(name).value = state[name];
    $(name).addEventListener('change', () => {
      state[name] = typeof state[name] === 'number' ? Number($(name).value) : $(name).value;
      drawAll();
    });
  }
  $('theme').addEventListener('click', () => {
    setTheme(isDark() ? 'light' : 'dark');
    drawAll();
  });
  $('save-svg').addEventListener('click', () => save(new Blob([shownAsText()], { type: 'image/svg+xml' }), 'svg'));
  $('save-png').addEventListener('click', async () => save(await shownAsPng(), 'png'));
}

async function start() {
  setTheme(matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  data = await readData();
  readAddress();
  const files = data.inputs.map(([path]) => path.split('/').at(-1)).join(', ');
  $('title').textContent = document.title = data.title || `Attention maps${files && `: ${files}`}`;
  const paths = [...new Set(data.layers.map((layer) => layer.path))].join(', ');
  const inputs = data.inputs.map(([path, sha256, unknown]) => (sha256 ? `SHA-256 ${sha256}: ${path}\n`
    : `Input ${path}: no SHA-256, ${unknown}\n`));
  $('foot').textContent = `${data.command && `Written by: ${data.command}\n`}${inputs.join('')}mha ${data.version}. ${
    paths && `Path: ${paths}. `}Instruction set: ${data.isa}.`;
  addControls();
  $('main').hidden = false;
  if (data.sheets.length) chooseSheet(firstSheet());
  drawAll();
}

start().catch((problem) => {
  $('problem').textContent = `The page cannot be shown: ${problem.message}`;
  $('problem').hidden = false;
});
