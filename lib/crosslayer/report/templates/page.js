const specs = JSON.parse(document.getElementById("specs").textContent);
for (const { datasets } of Object.values(specs)) {  // their rows come as columns
  for (const [name, columns] of Object.entries(datasets)) {
    const names = Object.keys(columns);
    datasets[name] = (columns[names[0]] ?? []).map((_, i) => Object.fromEntries(names.map(name => [name, columns[name][i]])));
  }
}
function give(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
function csv(rows) {
  const names = Object.keys(rows[0] ?? {});
  const cell = v => v === null || v === undefined ? "" : /[",\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : v;
  return [names, ...rows.map(row => names.map(name => row[name]))].map(row => row.map(cell).join(",")).join("\n") + "\n";
}
document.addEventListener("click", event => {
  const { csv: table, json: spec } = event.target.dataset ?? {};
  if (table) {
    const { datasets, usermeta } = specs[table], { campaign } = usermeta.crosslayer;
    give(`${table}.csv`, "text/csv", csv(Object.values(datasets)[0].map(row => ({ ...row, campaign }))));
  }
  if (spec) give(`${spec}.vl.json`, "application/json", JSON.stringify(specs[spec], null, 1));
});

function filtered(table, form) {
  const rows = [...table.tBodies[0].rows];
  const show = () => {
    const { verdict, paper, words, contradiction, changed } = form.elements;
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !((!verdict.value || row.dataset.counted === verdict.value) && (!paper.value || row.dataset.paper === paper.value)
        && (!contradiction.checked || "contradiction" in row.dataset) && (!changed?.checked || "changed" in row.dataset) && wanted.every(word => text.includes(word)));
      shown += !row.hidden;
    }
    form.querySelector("output").value = `${shown} of ${rows.length} claims`;
  };
  form.hidden = false;
  form.addEventListener("input", show);
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(show));  // the event comes before the values go
  document.addEventListener("click", event => {
    const link = event.target.closest?.("a[href^='#']");
    if (link && "verdict" in link.dataset) {
      form.reset();
      form.elements.verdict.value = link.dataset.verdict;
      form.elements.paper.value = link.dataset.paper;
      show();
    } else if (link && document.querySelector(link.hash)?.hidden) {  // a claim that the filter hides
      form.reset();
      show();
    }
  });
  show();
}
function sortable(table) {
  const body = table.tBodies[0], rows = [...body.rows], rank = body.dataset.verdicts.split(" ");
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!("sort" in head.dataset)) return;
    const button = document.createElement("span");  // a real button is not printed where a table's head is repeated
    button.role = "button";
    button.tabIndex = 0;
    button.append(...head.childNodes);
    head.append(button);
    const key = head.textContent === "Verdict" ? row => rank.indexOf(row.className)
      : head.textContent === "Claim" ? row => rows.indexOf(row) : row => row.cells[column].textContent;
    button.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      button.click();
    });
    button.addEventListener("click", () => {
      const down = head.ariaSort === "ascending" ? -1 : 1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.ariaSort = down > 0 ? "ascending" : "descending";
      const keys = new Map(rows.map(row => [row, key(row)]));
      const compare = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
      body.append(...rows.toSorted((a, b) => down * compare(keys.get(a), keys.get(b))));
    });
  });
}
const claims = document.querySelector("table.claims");
if (claims) {
  sortable(claims);
  filtered(claims, document.querySelector("form.filter"));
}

const captured = JSON.parse(document.getElementById("captured")?.textContent ?? "[]");
const dialog = document.querySelector("#loads dialog");
// The loads behind a point: of its link and page where it has them, those that it names first, then the nearest in time.
function behind(datum) {
  const values = Object.values(datum), numbers = values.filter(value => typeof value === "number");
  const words = values.filter(value => typeof value === "string").join(" ").toLowerCase();
  const known = name => new Set(captured.map(load => load.conditions[name]));
  const places = ["link", "page"].filter(name => known(name).has(datum[name]));
  const named = load => Object.entries(load.conditions)
    .filter(([name, word]) => !places.includes(name) && word.length > 1 && words.includes(word.toLowerCase())).length;
  const apart = load => Math.min(...numbers.map(number => Math.abs(number - (load.ms ?? Infinity))));
  return captured.filter(load => places.every(name => load.conditions[name] === datum[name]))
    .map(load => ({ load, named: named(load), apart: apart(load) }))
    .toSorted((a, b) => b.named - a.named || a.apart - b.apart || 0).map(({ load }) => load);
}
function offer(event, item) {
  const datum = item?.datum?.datum ?? item?.datum;
  if (!dialog || !datum || typeof datum !== "object") return;
  const loads = behind(datum);
  if (!loads.length) return;
  dialog.querySelector("ul").replaceChildren(...loads.slice(0, 12).map(({ href, ms, conditions }) => {
    const row = document.createElement("li"), link = document.createElement("a");
    link.href = href;
    link.textContent = ms === null ? "no time" : `${ms.toFixed(1)} ms`;
    row.append(link, ` ${Object.values(conditions).join(", ")}`);
    return row;
  }));
  dialog.showModal();
}

const dark = matchMedia("(prefers-color-scheme: dark)").matches;
async function draw() {
  let drawn = 0;
  for (const place of document.querySelectorAll(".chart")) {
    const stage = document.createElement("div");
    try {
      const { view } = await vegaEmbed(stage, specs[place.dataset.name],
        { renderer: "svg", actions: false, logLevel: 1, tooltip: { theme: dark ? "dark" : "light" } });
      view.addEventListener("click", offer);
      place.replaceChildren(stage);
      drawn += 1;
    } catch (error) { console.error(place.dataset.name, error); }  // the picture stays
    await new Promise(done => setTimeout(done));
  }
  document.documentElement.dataset.drawn = drawn;
}
draw();
