/* Tensors beside each other, stage by stage: a, b, a - b, the worst cell, and the first stage that diverges. */

/* The sheet, the map and the cell that are shown. */
const sheetState = { sheet: 0, map: 0, row: 0, column: 0 };

const shapeText = (shape) => `(${shape.join(', ')}${shape.length === 1 ? ',' : ''})`;

/* Something in the form of a head, so that it is drawn as one. */
function asHead(sheet) {
  return { rows: sheet.rows, columns: sheet.columns, poolRows: sheet.poolRows, poolColumns: sheet.poolColumns,
    firstQuery: 0, firstKey: 0, isPlain: true, layer: { offset: 0 } };
}

/* The cells of a map of a, of b and of a - b; hidden where both are -infinity, NaN where only one is finite. */
function sheetCells(sheet, map) {
  const count = sheet.rows * sheet.columns;
  const [a, b] = [sheet.a, sheet.b].map((piece) => data.numbers(piece)?.subarray(map * count, (map + 1) * count));
  if (!b) return [a];
  const difference = Float64Array.from(a, (x, i) => (x === b[i] ? (x === HIDDEN ? HIDDEN : 0)
    : Number.isFinite(x) && Number.isFinite(b[i]) ? x - b[i] : NaN));
  return [a, b, difference];
}

function largestSize(...arrays) {
  let most = 0;
  for (const numbers of arrays) for (const x of numbers) if (Number.isFinite(x)) most = Math.max(most, Math.abs(x));
  return most;
}

const sideNames = (sheet) => {
  const [a, b] = [data.sides[0] || 'a', sheet.beside || data.sides[1] || 'b'];
  return [a, b, `${a} − ${b}`];
};

/* A number of the description, which may be a word, with so many digits. */
const shortened = (text, digits = 3) => (Number.isFinite(Number(text)) ? textOf(Number(Number(text).toPrecision(digits)))
  : text);

/* Columns of the table of tensors: title and text. */
const PAIR_COLUMNS = [
  ['', ({ mark }) => mark],
  ['shape', ({ shape }) => shapeText(shape)],
  ['max |difference|', ({ difference }) => shortened(difference.most)],
  ['allowed', ({ difference: d }) => (d.rtol === '0' ? '' : `${shortened(d.rtol)} |b| + `) + shortened(d.atol)],
  ['differ', ({ difference: d }) => `${d.differ.toLocaleString('en')} of ${d.elements.toLocaleString('en')}`],
  ['max ULP', ({ difference }) => shortened(difference.ulps)],
  ['worst at', ({ difference }) => shapeText(difference.worstIndex)],
  ['there', (sheet) => sheet.difference.worst.map((x, n) => `${sideNames(sheet)[n]} ${shortened(x, 7)}`).join(', ')],
];
const ALONE_COLUMNS = [
  ['shape', ({ shape }) => shapeText(shape)], ['least', ({ alone }) => shortened(alone.least, 6)],
  ['largest', ({ alone }) => shortened(alone.largest, 6)], ['rms', ({ alone }) => shortened(alone.rms, 6)],
  ['NaN or infinite', ({ alone }) => String(alone.broken)],
];

function drawSheetTable() {
  const columns = data.sheets.some((sheet) => sheet.difference) ? PAIR_COLUMNS : ALONE_COLUMNS;
  $('sheets').tHead.replaceChildren(element('tr', {},
    ...['tensor', ...columns.map(([title]) => title)].map((title) => element('th', { scope: 'col' }, title))));
  $('sheets').tBodies[0].replaceChildren(...data.sheets.map((sheet, n) => {
    const button = element('button', { type: 'button' }, sheet.name);
    button.disabled = sheet.a < 0;
    button.addEventListener('click', () => chooseSheet(n));
    const cells = sheet.a < 0 ? [element('td', { colspan: columns.length }, sheet.obstacle)]
      : columns.map(([, text]) => element('td', ['FIRST', 'differs'].includes(text(sheet)) ? { class: 'bad' } : {},
        text(sheet)));
    return element('tr', { 'aria-current': n === sheetState.sheet }, element('td', {}, button), ...cells);
  }));
}

/* The first stage that diverges, or else the first tensor that differs, or the first one. */
function firstSheet() {
  const found = ['FIRST', 'differs'].map((mark) => data.sheets.findIndex((sheet) => sheet.mark === mark && sheet.a >= 0));
  return found.find((n) => n >= 0) ?? Math.max(0, data.sheets.findIndex((sheet) => sheet.a >= 0));
}

/* Begins with the cell in which the tensors differ most. */
function chooseSheet(n) {
  const sheet = data.sheets[n], [map, row, column] = sheet.difference?.worstAt ?? [0, 0, 0];
  Object.assign(sheetState, { sheet: n, map: sheet.difference ? map - sheet.firstMap : 0,
    row: Math.floor(row / sheet.poolRows), column: Math.floor(column / sheet.poolColumns) });
  const axes = sheet.shape.slice(0, -2);
  $('sheet-map').replaceChildren(...Array.from({ length: sheet.a < 0 ? 0 : sheet.maps }, (_, m) => {
    const index = [];
    for (let axis = axes.length - 1, left = m + sheet.firstMap; axis >= 0; axis--) {
      index.unshift(left % axes[axis]);
      left = Math.floor(left / axes[axis]);
    }
    return element('option', { value: m }, `[${[...index, ':', ':'].join(', ')}]`);
  }));
  $('sheet-map-label').hidden = sheet.maps < 2;
  drawSheets();
}

function sheetNote(sheet) {
  const notes = [];
  if (sheet.difference) notes.push(`Framed: where ${sideNames(sheet)[0]} and ${sideNames(sheet)[1]} differ most.`);
  if (sheet.poolRows * sheet.poolColumns > 1) {
    notes.push(`A cell stands for ${sheet.poolRows} × ${sheet.poolColumns} elements and shows the one that ${
      sheet.difference ? 'differs most' : 'is largest in size'}.`);
  }
  if (sheet.maps < sheet.allMaps) notes.push(`${sheet.maps} of its ${sheet.allMaps} maps are on this page.`);
  return notes.join(' ');
}

function cellNumbers(sheet) {
  const { map, row, column } = sheetState, at = row * sheet.columns + column;
  const numbers = sheetCells(sheet, map).map((cells) => cells[at]), [a, b] = numbers;
  const range = (i, pool, end) => (pool === 1 ? String(i) : `${i * pool} to ${Math.min((i + 1) * pool, end) - 1}`);
  const facts = [['row, column', `${range(row, sheet.poolRows, sheet.mapRows)}, ${
    range(column, sheet.poolColumns, sheet.mapColumns)}`]];
  const full = (x) => (Number.isFinite(x) ? String(x).replace('-', '−') : textOf(x));
  if (b === undefined) facts.push(['value', full(a)]);
  else {
    sideNames(sheet).forEach((name, n) => facts.push([name, full(numbers[n])]));
    const steps = ulps(a, b);
    if (!Number.isNaN(steps)) facts.push(['apart', `${steps.toLocaleString('en')} float32 steps (ULP)`]);
  }
  return facts;
}

function showSheetCell(row, column) {
  const sheet = data.sheets[sheetState.sheet], layout = layoutOf(asHead(sheet));
  Object.assign(sheetState, { row, column });
  for (const cursor of document.querySelectorAll('.sheet-cursor')) {
    cursor.setAttribute('x', layout.left + column * layout.cell);
    cursor.setAttribute('y', layout.top + row * layout.cell);
  }
  $('sheet-cell').replaceChildren(factsList(cellNumbers(sheet)));
}

function onSheetKey(event) {
  const sheet = data.sheets[sheetState.sheet], move = MOVES[event.key];
  if (!move) return;
  const clamp = (i, n) => Math.min(Math.max(i, 0), n - 1);
  showSheetCell(clamp(sheetState.row + move[0], sheet.rows), clamp(sheetState.column + move[1], sheet.columns));
  event.preventDefault();
}

function sheetPicture(sheet, cells, most, title, isDifference) {
  const head = asHead(sheet), layout = layoutOf(head);
  const picture = pictureOf(data, head, cells, differenceScale(most, 'value'), data.numbers(data.diverging), title);
  const size = { width: layout.cell, height: layout.cell, fill: 'none' };
  const [map, row, column] = sheet.difference?.worstAt ?? [];
  if (isDifference && map === sheetState.map + sheet.firstMap && sheet.difference.most !== '0') {
    picture.append(svg('rect', { ...size, class: 'worst', stroke: styleOf('--mark'), 'stroke-width': 2,
      x: layout.left + Math.floor(column / sheet.poolColumns) * layout.cell,
      y: layout.top + Math.floor(row / sheet.poolRows) * layout.cell }));
  }
  picture.append(svg('rect', { ...size, class: 'sheet-cursor', stroke: styleOf('--ink'), 'stroke-dasharray': '3 2' }));
  const choose = (event) => {
    const cell = cellAt(event, picture, head);
    if (cell) showSheetCell(...cell);
  };
  picture.addEventListener('pointermove', choose);
  picture.addEventListener('pointerdown', choose);
  picture.addEventListener('keydown', onSheetKey);
  return element('figure', {}, element('figcaption', {}, title), picture);
}

function drawSheets() {
  $('sheets-section').hidden = data.sheets.length === 0;
  if (data.sheets.length === 0) return;
  const sheet = data.sheets[sheetState.sheet];
  $('notes').replaceChildren(...data.notes.map((note) => element('li', {}, note)));
  $('sheets-title').textContent = data.sheets.some((s) => s.difference) ? 'Difference, stage by stage' : 'Stages';
  drawSheetTable();
  $('sheet').replaceChildren();
  $('sheet-cell').replaceChildren();
  $('sheet-note').textContent = sheet.a < 0 ? '' : sheetNote(sheet);
  if (sheet.a < 0) return;
  $('sheet-map').value = sheetState.map;
  const [a, b, difference] = sheetCells(sheet, sheetState.map), names = sideNames(sheet);
  const most = b ? largestSize(a, b) : largestSize(a);
  const maps = b ? [[a, most], [b, most], [difference, largestSize(difference)]] : [[a, most]];
  $('sheet').replaceChildren(...maps.map(([cells, size], n) => sheetPicture(sheet, cells, size,
    b ? names[n] : sheet.name, n === 2)));
  showSheetCell(sheetState.row, sheetState.column);
}
