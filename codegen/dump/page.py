"""The page of a dump: columns side by side in one HTML file that needs nothing else, in light and dark."""

from __future__ import annotations

import json
from html import escape

from hardtack.codegen.dump.links import Column, Line, Linked

_HEADS = ("graph ", "nest ", "template ", "control ", "group ", "kernel ", "plan ", "// ", "-- ")

_STYLE = """
:root { color-scheme: light dark; --back: #fcfcfa; --text: #22252a; --dim: #84888f; --line: #dcdcd6; --bar: #f1f1ec;
  --hover: #fdf0c4; --pin: #fbd98a; --found: #bfe3c8; --now: #5bbf78; --head: #1d4f91; }
@media (prefers-color-scheme: dark) { :root { --back: #17191c; --text: #d7d9dc; --dim: #7d838b; --line: #34383d;
  --bar: #202327; --hover: #3d3620; --pin: #57461a; --found: #234a2e; --now: #2f7d46; --head: #86b5f2; } }
* { box-sizing: border-box; }
html, body { height: 100%; margin: 0; background: var(--back); color: var(--text); }
body { display: flex; flex-direction: column; font: 14px/1.4 system-ui, sans-serif; }
#bar, #about { flex: none; padding: .4rem .8rem; background: var(--bar); }
#bar { display: flex; gap: .8rem; align-items: center; border-bottom: 1px solid var(--line); }
#about { border-top: 1px solid var(--line); min-height: 4.2em; }
#about { white-space: pre-line; overflow: auto; max-height: 7em; font-size: 12px; color: var(--dim); }
h1 { font-size: 1em; margin: 0; } #count { color: var(--dim); min-width: 6em; } label { color: var(--dim); }
input[type=search] { width: 18rem; font: inherit; padding: .15rem .5rem; }
#columns { flex: 1; min-height: 0; display: flex; overflow-x: auto; }
section { flex: 1 0 24rem; display: flex; flex-direction: column; min-width: 0; border-right: 1px solid var(--line);
  overflow: hidden; }
section:not(.closed) { resize: horizontal; }
section > button { flex: none; display: flex; justify-content: space-between; gap: .5rem; font: inherit;
  font-weight: 600; text-align: left; color: inherit; background: var(--bar); border: 0;
  border-bottom: 1px solid var(--line); padding: .3rem .6rem; cursor: pointer; }
section > button span { font-weight: 400; color: var(--dim); }
section.closed { flex: none; width: 2.2rem !important; }
section.closed .code, section.closed button span { display: none; }
section.closed > button { writing-mode: vertical-rl; flex: 1; }
.code { flex: 1; overflow: auto; font: 12px/1.5 ui-monospace, monospace; padding: .3rem 0; counter-reset: n; }
.code div { white-space: pre; padding: 0 .8rem 0 0; width: max-content; min-width: 100%; min-height: 1.5em; }
.code div::before { counter-increment: n; content: counter(n); display: inline-block; width: 4.2ch; margin-right: 1.2ch;
  text-align: right; color: var(--dim); opacity: .6; user-select: none; }
.wrap .code div { white-space: pre-wrap; overflow-wrap: anywhere; width: auto; padding-left: 5.4ch;
  text-indent: -5.4ch; }
.wrap .code div::before { text-indent: 0; }
.code div[data-o] { cursor: pointer; } .code i { font-style: normal; color: var(--dim); }
.code b { color: var(--head); }
.hover { background: var(--hover); } .pin { background: var(--pin); } .found { background: var(--found); }
.found.now { background: var(--now); }
""".strip()

_SCRIPT = """
'use strict';
const all = [...document.querySelectorAll('.code div')], byOrigin = new Map();
const about = document.getElementById('about'), count = document.getElementById('count');
const box = document.querySelector('input[type=search]');
const ids = line => line && line.dataset.o ? line.dataset.o.split(' ') : [];
for (const line of all) for (const o of ids(line)) {
  if (!byOrigin.has(o)) byOrigin.set(o, []);
  byOrigin.get(o).push(line);
}
const related = line => new Set(ids(line).flatMap(o => byOrigin.get(o)));
let pinned = null, hovered = null, found = [], at = -1;
function mark(name, lines) {
  for (const old of document.querySelectorAll('.' + name)) old.classList.remove(name);
  for (const line of lines) line.classList.add(name);
}
function tell(line) { about.textContent = [...new Set(ids(line).map(o => origins[o]))].join('\\n') || hint; }
const hint = about.textContent;
function show(line, box) {
  box.scrollTop += line.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}
document.getElementById('columns').addEventListener('mouseover', event => {
  const line = event.target.closest('.code div');
  if (line === hovered) return;
  hovered = line;
  mark('hover', line ? related(line) : []);
  tell(ids(line).length ? line : pinned);
});
document.getElementById('columns').addEventListener('click', event => {
  const title = event.target.closest('section > button');
  if (title) { title.parentElement.classList.toggle('closed'); return; }
  const line = event.target.closest('.code div');
  if (!line || String(getSelection())) return;
  pinned = line === pinned || !ids(line).length ? null : line;
  const lines = pinned ? related(pinned) : new Set();
  mark('pin', lines);
  tell(pinned);
  const shown = new Set([line.parentElement]);
  for (const other of lines) if (!shown.has(other.parentElement)) {
    shown.add(other.parentElement);
    show(other, other.parentElement);
  }
});
function go(step) {
  if (!found.length) return;
  at = (at + step + found.length) % found.length;
  mark('now', [found[at]]);
  found[at].closest('section').classList.remove('closed');
  found[at].closest('section').scrollIntoView({inline: 'nearest', block: 'nearest'});
  show(found[at], found[at].parentElement);
  count.textContent = (at + 1) + ' of ' + found.length;
}
box.addEventListener('input', () => {
  const text = box.value.toLowerCase();
  found = text ? all.filter(line => line.textContent.toLowerCase().includes(text)) : [];
  at = -1;
  mark('found', found);
  mark('now', []);
  count.textContent = text ? found.length + ' lines' : '';
});
box.addEventListener('keydown', event => { if (event.key === 'Enter') go(event.shiftKey ? -1 : 1); });
document.addEventListener('keydown', event => {
  if (event.key === '/' && document.activeElement !== box) { event.preventDefault(); box.focus(); }
  if (event.key !== 'Escape') return;
  pinned = null; mark('pin', []); tell(null);
  box.value = ''; box.dispatchEvent(new Event('input'));
});
document.getElementById('wrap').addEventListener('change', event => {
  document.getElementById('columns').classList.toggle('wrap', event.target.checked);
});
""".strip()

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_HINT = (
    "Point at a line to see what it comes from and what became of it; click to keep that and bring it into view in "
    "every column. Esc lets go. A column's title folds it."
)


def page(title: str, linked: Linked) -> str:
    """The whole page."""
    names = json.dumps(linked.occurrences).replace("<", "\\u003c")
    body = "\n".join(map(_column, linked.columns))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}: stages</title>
<style>
{_STYLE}
</style>
</head>
<body>
<div id="bar"><h1>{escape(title)}</h1><input type="search" placeholder="Search all columns (/, Enter for the next)">
<span id="count"></span><label><input type="checkbox" id="wrap"> wrap lines</label></div>
<div id="columns">
{body}
</div>
<div id="about">{escape(_HINT)}</div>
<script>
const origins = {names};
{_SCRIPT}
</script>
</body>
</html>
"""


def _column(column: Column) -> str:
    lines = "\n".join(map(_line, column.lines))
    title = f"{escape(column.title)}<span>{len(column.lines)} lines</span>"
    return f'<section><button>{title}</button><div class="code">\n{lines}\n</div></section>'


def _line(line: Line) -> str:
    links = f' data-o="{" ".join(map(str, line.links))}"' if line.links else ""
    code, mark, comment = line.text.rpartition("  # ")
    if mark:
        text = f"{escape(code)}<i>{escape(mark + comment)}</i>"
    else:
        text = escape(line.text)
    if line.text.lstrip().startswith(_HEADS):
        text = f"<b>{text}</b>"
    return f"<div{links}>{text}</div>"
