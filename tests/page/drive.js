/* Drives a page of `mha show --picture` in a browser, as a person would, and writes what was wrong into an element "r":
 * "ok N checks", or a line for each failure. test_page.sh appends this script to a copy of the page. */

const failures = [];
let checks = 0;

function check(what, holds) {
  checks += 1;
  if (!holds) failures.push(what);
}

addEventListener('error', (event) => failures.push(`error: ${event.message}`));
addEventListener('unhandledrejection', (event) => failures.push(`rejection: ${event.reason}`));
addEventListener('securitypolicyviolation', (event) => failures.push(`forbidden: ${event.blockedURI}`));
console.error = console.warn = (...words) => failures.push(`console: ${words.join(' ')}`);

const shownHeads = () => [...document.querySelectorAll('.thumbnail')];
const fact = (term) => [...document.querySelectorAll('#cell dt')].find((dt) => dt.textContent === term)
  ?.nextElementSibling.textContent;

function moveTo(row, column) {
  const picture = $('head-map').firstElementChild, layout = layoutOf(chosenHead());
  const box = picture.getBoundingClientRect(), scale = box.width / layout.whole[0];
  picture.dispatchEvent(new PointerEvent('pointermove', {
    clientX: box.left + scale * (layout.left + (column + 0.5) * layout.cell),
    clientY: box.top + scale * (layout.top + (row + 0.5) * layout.cell) }));
}

function press(key) {
  $('head-map').firstElementChild.dispatchEvent(new KeyboardEvent('keydown', { key, cancelable: true }));
}

function change(name, value) {
  $(name).value = value;
  $(name).dispatchEvent(new Event('change'));
}

/* ---------------------------------------------------------------- the overview */

/* A map fits a narrow screen, or is scrolled inside its own frame: its text keeps its size, its cells stay as large as a
 * finger can point at, and its colour bar is in sight. */
function checkRoom(head) {
  const layout = layoutOf(head), picture = $('head-map').firstElementChild, edge = (part) => part.getBoundingClientRect();
  const ticks = [...picture.querySelectorAll('.tick')], frame = edge($('head-map'));
  check(`a cell of ${layout.cell} pixels`, layout.cell > Math.min(MAP.side / Math.max(head.rows, head.columns), MAP.finger)
    - 0.5 && layout.cell < MAP.cell + 0.5);
  check('text of a map is as large as it says', Math.abs(edge(picture).width - layout.whole[0]) < 1);
  check('the colour bar is in sight', ticks.length >= 3 && ticks.every((tick) => edge(tick).right <= frame.right
    && edge(tick).left >= frame.left));
  check('hidden parts take no room', [...document.querySelectorAll('[hidden]')].every((part) => !part.getClientRects().length));
  check('the page is no wider than its window', document.documentElement.scrollWidth <= window.innerWidth);
}

function checkOverview() {
  const expected = data.layers.flatMap((layer) => layer.heads).filter((head) => head.sequence === state.sequence);
  check('a thumbnail for each head', shownHeads().length === expected.length && expected.length > 0);
  check('the foot says on which path', $('foot').textContent.includes(`Path: ${data.layers[0].path}`));
  check('the title is that of the data', data.title ? document.title === data.title
    : document.title.startsWith('Attention maps'));
  for (const [key] of ORDERS) {
    change('order', key);
    const values = shownHeads().map((button) => button.head.statistics[key]).filter((x) => x !== null && x !== undefined);
    const sign = ASCENDING.has(key) ? 1 : -1;
    check(`sorted by ${key}`, key === 'place' || values.every((x, i) => i === 0 || sign * (x - values[i - 1]) >= 0));
  }
  change('order', 'place');
  const last = shownHeads().at(-1);
  last.click();
  check('a click chooses a head', chosenHead() === last.head && $('head-title').textContent === nameOf(last.head));
  check('the chosen head is marked', shownHeads().at(-1).getAttribute('aria-pressed') === 'true');
}

/* ---------------------------------------------------------------- a head */

function checkPixels(head) {
  const weights = data.numbers(head.weights), colours = data.numbers(data.sequential);
  for (const name of ['linear', 'log', 'row', 'rest']) {
    const scale = scaleOf(name, head, weights);
    const pixels = pixelsOf(head, weights, scale, colours).getContext('2d').getImageData(0, 0, head.columns, head.rows).data;
    let wrong = 0;
    weights.forEach((w, i) => {
      const r = Math.floor(i / head.columns), c = i % head.columns;
      const colour = Number.isNaN(w) ? [255, 0, 160] : colourAt(colours, scale.share(w, r, c));
      const isRight = w === HIDDEN ? pixels[4 * i + 3] === 0 : pixels[4 * i + 3] === 255
        && colour.every((part, n) => pixels[4 * i + n] === part);
      if (!isRight) wrong += 1;
    });
    check(`pixels of the ${name} scale`, wrong === 0);
  }
}

function checkCells(head) {
  const weights = data.numbers(head.weights);
  for (const [row, column] of [[0, 0], [head.rows - 1, 0], [0, head.columns - 1], [head.rows >> 1, head.columns >> 1]]) {
    moveTo(row, column);
    check(`hover finds cell ${row}, ${column}`, state.row === row && state.column === column);
    const w = weights[row * head.columns + column], text = fact('weight');
    const shown = w === HIDDEN ? 'none: the key is hidden' : data.isRounded && w > 0 ? w.toPrecision(2) : textOf(w);
    check(`the weight of ${row}, ${column} is ${text}`, text.includes(shown));
    if (w !== HIDDEN && !Number.isNaN(w) && fact('rank')) {
      const line = [...weights.subarray(row * head.columns, (row + 1) * head.columns)];
      check('rank', fact('rank').startsWith(`${1 + line.filter((x) => x > w).length} of `));
    }
  }
  moveTo(0, 0);
  press('ArrowRight');
  check('arrow keys move the cell', state.column === Math.min(1, head.columns - 1));
  press('PageDown');
  check('Page Down changes the head', head.layer.heads.length === 1 || chosenHead() !== head);
  press('PageUp');
  check('Page Up comes back', chosenHead() === head);
}

/* Beside a pooled map the keys of a query are exact: those of the first query of the last row are said, in order, and
 * none is larger than what the row of the map has, which a page of many cells rounds to steps of 5.6 %. */
function checkTop(head) {
  if (head.top === 0) return;
  moveTo(head.rows - 1, 0);
  const top = topKeys(head, head.rows - 1), said = $('lines').textContent, weights = data.numbers(head.weights);
  check('a far row lists its keys', top.length > 0 && top.every(([key]) => said.includes(`key ${key}`))
    && said.includes(`query ${head.firstQuery + (head.rows - 1) * head.poolRows}`));
  check('the largest first', top.every(([, w], i) => i === 0 || w <= top[i - 1][1]));
  const most = weights.subarray((head.rows - 1) * head.columns).reduce((a, b) => Math.max(a, b));
  check('none above the map', top[0][1] <= most * (data.isRounded ? 1.056 : 1 + 2 ** -23));
}

async function checkSaving() {
  const text = shownAsText(), parsed = new DOMParser().parseFromString(text, 'image/svg+xml');
  check('the SVG is well-formed', !parsed.querySelector('parsererror') && parsed.querySelector('image'));
  check('the SVG asks for nothing', !/href="(?!data:)/.test(text));
  const png = new Uint8Array(await (await shownAsPng()).arrayBuffer());
  check('the PNG is one', png.length > 500 && png[1] === 80 && png[2] === 78 && png[3] === 71);
}

/* ---------------------------------------------------------------- the walk */

/* Each number is what its explanation sums up to, and what it comes from is there to be clicked. The bound: n additions
 * of terms of this size, each rounded once; for a softmax exp() of scores that were rounded, for a cosine an angle. */
function checkNumber(w, place) {
  const found = w.at(...place), { text, terms, inputs = [], total } = explain(w, place);
  const sources = [...inputs, ...terms.flatMap((term) => term.from)];
  const isThere = ([name, r, c]) => w.has(name) && r >= 0 && r < w.array(name).rows && c >= 0 && c < w.array(name).columns;
  if (!sources.every(isThere) || (!sources.length && !/given|cache|left out|no token|no key|table of/.test(text))) return 1;
  if (found === total || (Number.isNaN(found) && Number.isNaN(total))) return 0;
  let size = Math.abs(found);
  for (const term of terms) size += Math.abs(term.value);
  if (place[0] === 'weights') {
    const { columns } = w.array('masked');
    for (let c = 0; c < columns; c++) {
      const m = w.at('masked', place[1], c);
      if (Number.isFinite(m)) size = Math.max(size, Math.abs(m));
    }
    if (w.has('sinks')) size = Math.max(size, Math.abs(w.at('sinks', 0, w.h)));
  }
  if (/^[qk]_rot$/.test(place[0])) size += normedSize(w, place[0][0], place[1] - (place[0] === 'k_rot' ? w.walk.past : 0));
  if (/_(cos|sin)$/.test(place[0])) size = 1 + Math.abs(w.at(...inputs[0]) * w.at(...inputs[1]));
  return Math.abs(found - total) <= 8 * (terms.length + 2) * Number.EPSILON * size ? 0 : 1;
}

/* The most that a norm makes of a row: it takes a mean of `count` numbers away from numbers of their size. */
function normedSize(w, side, r) {
  const [, from] = stepsOf(w, side).find(([step]) => step === 'normed') ?? [];
  if (!from || r < 0) return 0;
  const norm = normOf(w, side), [first, past] = sliceOf(w, side);
  let most = 0;
  for (let c = first; c < past; c++) {
    const { mean, square } = statisticsOf(w, norm, from, r, c), [factor, bias] = [norm.factor(c), norm.bias(c)];
    most = Math.max(most, (Math.abs(w.at(from, r, c)) + Math.abs(mean)) / Math.sqrt(square + norm.eps)
      * (factor ? 1 + Math.abs(w.at(...factor)) : 1) + (bias ? Math.abs(w.at(...bias)) : 0));
  }
  return norm.count * most;
}

/* A key is hidden exactly where something hides it; where the recorded case has no mask (mask_NAME: the name of its
 * rule), all that is hidden is so by a rule, and the page says the name. */
function checkRules(w) {
  const { rows } = w.array('masked'), [from, to] = sliceOf(w, 'masked'), said = new Set();
  let wrong = 0, most = 0;
  for (let r = 0; r < rows; r++) {
    for (let c = from; c < to; c++) {
      const reasons = [...rulesAgainst(w, r, c), ...hidersOf(w, r, c)], why = whyHidden(w, r, c);
      if ((reasons.length > 0) !== (why !== null) || !reasons.every((reason) => why.includes(reason))) wrong += 1;
      if (why) said.add(why);
      most = Math.max(most, reasons.length);
    }
  }
  check(`${wrong} keys are hidden for other reasons`, wrong === 0);
  check('several reasons are named together', !/walk_masks\./.test(data.command) || most >= 4);
  const pattern = data.command.match(/vectors\/pattern_([a-z_]+)/)?.[1];
  const reason = { segments: 'another segment', query_padding: 'is padding', lists: 'list of keys', blocks: 'of blocks' };
  check(`the ${pattern} is a reason`, !pattern || [...said].some((why) => why.includes(reason[pattern])));
  const names = data.command.match(/vectors\/mask_([a-z_]+)/)?.[1];
  if (!names) return;
  check('only rules hide keys here', !w.has('hidden_by'));
  for (const [name, words] of [['prefix', 'the prefix'], ['chunked', 'is in chunk'], ['keep', 'which it keeps']]) {
    check(`the ${name} is a reason`, !names.includes(name) || [...said].some((why) => why.includes(words)));
  }
}

/* The case last_features turns the last 4 features of each head by its position, base 10000, and makes them 1.5 times
 * as long. A page says angles with six digits: those below 10 are off by 5e-6 at most, and half of that is compared. */
function checkRotation(w) {
  if (!data.command.includes('last_features')) return;
  const dk = w.layer.d_k, first = sliceOf(w, 'q_rot')[0];
  let wrong = 0;
  for (let r = 0; r < w.array('q_rot').rows; r++) {
    for (let f = 0; f < dk; f++) {
      const { text } = explain(w, ['q_rot', r, first + f]), turned = text.match(/ by (\S+) radians/)?.[1].replace('−', '-');
      const angle = r * 10000 ** (-((f - dk + 4) % 2) / 2);
      if (f < dk - 4 ? text !== 'Not rotated.' : !(Math.abs(Math.sin((Number(turned) - angle) / 2)) < 3e-6
        && text.endsWith(', and multiplied by 1.5.'))) wrong += 1;
    }
  }
  check(`${wrong} of the last features are turned otherwise`, wrong === 0);
}

function checkWalk(head) {
  if ($('walk-body').hidden) return;
  const titles = [...document.querySelectorAll('.panel h3')].map((title) => title.textContent);
  const w = walkAt(head, head.firstQuery + state.row, head.firstKey + state.column);
  check(`eleven panels, and those of latents and a gate: ${titles}`, titles.length === 11 + w.knows('kv_latent') + w.knows('gated'));
  for (const name of Object.keys(EXPLAIN)) {
    if (!w.has(name)) continue;
    const { rows } = w.array(name), [from, to] = sliceOf(w, name);
    let wrong = 0;
    for (let r = 0; r < rows; r++) for (let c = from; c < to; c++) wrong += checkNumber(w, [name, r, c]);
    check(`${wrong} numbers of ${name} are not what they come from`, wrong === 0);
  }
  checkRules(w);
  checkRotation(w);
  const weights = data.numbers(head.weights), at = state.row * head.columns + state.column;
  check('map and walk agree', weights[at] === HIDDEN || w.j !== head.firstKey + state.column
    || Object.is(w.at('weights', w.i, w.j), weights[at]));
  const panels = [...document.querySelectorAll('.panel')], of = (begin) => panels[titles.findIndex((title) => title.includes(begin))];
  for (const begin of ['. x', '. heads =']) {
    const clicked = of(begin).querySelector('.row:last-child .number');
    clicked.scrollIntoView({ block: 'end' });
    clicked.click();
    const sum = $('walk-sum').getBoundingClientRect(), number = document.querySelector('#walk [aria-pressed="true"]');
    check(`a click at ${begin} is answered on the screen`, sum.height > 0 && sum.top >= 0 && sum.bottom <= innerHeight + 1
      && number.getBoundingClientRect().top >= 0 && number.getBoundingClientRect().bottom <= sum.top + 1);
  }
  check('a click explains a number', explained && explained[0] === 'heads' && $('walk-sum').textContent.includes('heads['));
  const source = document.querySelector('#walk-sum .number');
  if (source) {
    source.click();
    check('and then the number it came from', explained[0] !== 'heads');
  }
  const counted = Object.keys(w.walk.arrays).filter((name) => PARAMETERS.includes(name));
  check('each weight has a row', $('walk-parameters').tBodies[0].rows.length === counted.length + 1);
  if ($('walk-slider').hidden) return;
  const total = $('walk-parameters').textContent.match(/total([\d,]+)$/)?.[1];
  $('walk-heads').value = $('walk-heads').value === '0' ? '1' : '0';
  $('walk-heads').dispatchEvent(new Event('input'));
  check('other head counts have the same total', $('walk-parameters').textContent.endsWith(`total${total}`)
    && $('walk-heads-text').textContent.includes(`${total} parameters, the same`));
}

/* ---------------------------------------------------------------- the difference */

function checkDifference() {
  if ($('difference-section').hidden) return;
  const pairs = differencePairs(), asked = Number($('difference-pair').value);
  check('layers of other names are not compared unasked', asked < 0 ? $('difference').textContent === ''
    : data.layers[pairs[asked][0]].name === data.layers[pairs[asked][1]].name);
  change('difference-pair', '0');
  const [i, j] = pairs[0], a = data.layers[i].heads[state.index], b = data.layers[j].heads[state.index];
  const x = data.numbers(a.weights), y = data.numbers(b.weights);
  let most = 0;
  x.forEach((w, n) => {
    const [p, q] = [w, y[n]].map((v) => (v === HIDDEN ? 0 : v)); /* what is hidden has no weight */
    if (!Number.isNaN(p - q)) most = Math.max(most, Math.abs(p - q));
  });
  const text = $('difference').textContent;
  check(`the largest difference ${most} is said: ${text}`, text.includes(most ? textOf(most) : 'cells that differ0 of'));
  check('no step between equal numbers', ulps(0.5, 0.5) === 0 && ulps(1, 1 + 2 ** -23) === 1 && ulps(-1e-45, 0) === 1);
}

/* ---------------------------------------------------------------- stage by stage */

function pointAt(figure, sheet, row, column) {
  const picture = figure.querySelector('svg'), layout = layoutOf(asHead(sheet));
  const box = picture.getBoundingClientRect(), scale = box.width / layout.whole[0];
  picture.dispatchEvent(new PointerEvent('pointermove', {
    clientX: box.left + scale * (layout.left + (column + 0.5) * layout.cell),
    clientY: box.top + scale * (layout.top + (row + 0.5) * layout.cell) }));
}

const spoken = (term) => [...document.querySelectorAll('#sheet-cell dt')].find((dt) => dt.textContent === term)
  ?.nextElementSibling.textContent;

/* Every tensor is chosen; its worst cell is framed and has the numbers that the table has; hover reads a corner. */
function checkSheets() {
  check('a section for sheets where there are some', $('sheets-section').hidden === (data.sheets.length === 0));
  const first = data.sheets.findIndex((sheet) => sheet.mark === 'FIRST');
  check('the first stage that diverges is shown first', first < 0 || sheetState.sheet === first);
  check('each note is said', data.notes.every((note) => $('notes').textContent.includes(note)));
  data.sheets.forEach((sheet, n) => {
    const button = document.querySelectorAll('#sheets tbody button')[n];
    check(`${sheet.name} can be chosen`, button.disabled === (sheet.a < 0));
    if (sheet.a < 0) {
      check('why nothing is drawn is said', $('sheets').tBodies[0].rows[n].textContent.includes(sheet.obstacle));
      return;
    }
    button.click();
    const figures = [...document.querySelectorAll('#sheet figure')], [a] = sheetCells(sheet, sheetState.map);
    check(`${sheet.name}: maps`, figures.length === (sheet.difference ? 3 : 1));
    if (sheet.difference) {
      const frame = document.querySelector('#sheet .worst');
      check(`${sheet.name}: the worst cell is framed`, (sheet.difference.most === '0') === !frame);
      const [x, y] = sheet.difference.worst, names = sideNames(sheet);
      const close = (text, number) => text === number
        || Math.abs(Number(text.replace('−', '-')) - Number(number)) <= 1e-8 * Math.abs(Number(number));
      check(`${sheet.name}: its numbers are ${x} and ${y}`, sheet.poolRows * sheet.poolColumns > 1
        || !Number.isFinite(Number(x)) || (close(spoken(names[0]), x) && close(spoken(names[1]), y)));
    }
    pointAt(figures[0], sheet, sheet.rows - 1, sheet.columns - 1);
    const shown = spoken(sheet.difference ? sideNames(sheet)[0] : 'value'), last = a.at(-1);
    check(`${sheet.name}: hover finds ${last}`, shown === (Number.isFinite(last) ? String(last).replace('-', '−') : textOf(last)));
    figures[0].querySelector('svg').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowUp', cancelable: true }));
    check('arrow keys move its cell', sheetState.row === Math.max(0, sheet.rows - 2));
    if (sheet.maps > 1) {
      change('sheet-map', sheet.maps - 1);
      check('another map', sheetState.map === sheet.maps - 1);
    }
  });
}

/* A page of 144 heads of 128 tokens is to be drawn half a second after it is opened, and takes less than that where it
 * has a processor for itself. A busy machine may take eight times as long, for that page and for all others: with ten
 * processes waiting for each processor it took up to 2 s. */
const MOST_MS = 8 * 500;

async function drive() {
  for (let i = 0; i < 200 && $('main').hidden; i++) await new Promise((resolve) => { setTimeout(resolve, 50); });
  check(`the page is shown: ${$('problem').textContent}`, !$('main').hidden);
  const opened = Math.round(performance.now()), heads = data.layers.reduce((n, layer) => n + layer.heads.length, 0);
  check(`${heads} heads are drawn after ${opened} ms, not ${MOST_MS}`, opened < MOST_MS);
  check('no request but the page', performance.getEntriesByType('resource').filter((e) => !/^(data|blob):/.test(e.name))
    .length === 0);
  check('nothing of a name became an element', document.querySelectorAll('img, iframe, object, b').length === 0);
  checkSheets();
  const before = isDark();
  $('theme').click();
  check('dark and light', isDark() !== before && $('theme').textContent === (before ? 'Dark colours' : 'Light colours'));
  const shown = isDark();
  dispatchEvent(new Event('beforeprint'));
  check('paper is light', !isDark());
  dispatchEvent(new Event('afterprint'));
  check('and then as it was', isDark() === shown);
  if (data.layers.length === 0) return;
  checkOverview();
  const head = chosenHead();
  if (head.rows * head.columns > 0) {
    checkPixels(head);
    checkRoom(head);
    checkCells(head);
    checkTop(head);
    moveTo(head.rows >> 1, 0);
    checkWalk(head);
  }
  for (const { walk, heads } of data.layers) {
    if (typeof walk !== 'object' || heads.includes(head)) continue;
    const walked = heads.find((one) => one.sequence === walk.sequence && one.head === walk.firstHead);
    chooseHead(walked);
    moveTo(walked.rows >> 1, 0);
    check('a walk where there is one', !$('walk-body').hidden);
    checkWalk(walked);
  }
  checkDifference();
  await checkSaving();
  for (const sequence of sequencesOf(data)) change('sequence', sequence);
}

drive().catch((problem) => failures.push(`exception: ${problem.stack}`)).finally(() => {
  const result = document.createElement('pre');
  result.id = 'r';
  result.textContent = failures.length ? failures.join('\n') : `ok ${checks} checks`;
  document.body.append(result);
});
