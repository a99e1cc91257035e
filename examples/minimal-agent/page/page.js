// Polls /agent/status, follows /agent/events, and updates only what is different. The answers contain text
// from pods (names, messages, logs). The script inserts this text as text, never as markup.
"use strict";
const period = 2000, maxPeriod = 30_000, requestTimeout = 10_000, streamTimeout = 40_000; // ms; a stream sends a heartbeat every 15 s
const keptEvents = 100, logLines = 100, logBytes = 1 << 20, explainEvery = 10_000;
const $ = id => document.getElementById(id);
let token = sessionStorage.getItem("token") ?? "";
let now = 0, started, announced, events = [], last = 0; // the agent's clock, its start, the states announced last
let timer, polling = false, failures = 0, since, stream;

// get sends a request to the agent, which is the server of the page.
async function get(path, accept = "application/json", signal = AbortSignal.timeout(requestTimeout)) {
  const headers = token ? { Accept: accept, Authorization: "Bearer " + token } : { Accept: accept };
  const answer = await fetch(path, { headers, signal, cache: "no-store", redirect: "error" });
  if (answer.ok) return answer;
  throw Object.assign(new Error((await answer.text()).trim() || `HTTP ${answer.status}`), { status: answer.status });
}
const pathOf = (...names) => names.map(encodeURIComponent).join("/");
// Elements. The parts of a template are its elements with data-t, by that attribute.
function make(template) {
  const n = $("t-" + template).content.firstElementChild.cloneNode(true);
  n.parts = Object.fromEntries([n, ...n.querySelectorAll("[data-t]")].map(e => [e.dataset.t, e]));
  return n;
}
function setText(n, text, most = 2000) {
  const s = text == null ? "" : String(text), cut = s.length > most ? s.slice(0, most) + "…" : s;
  if (n.textContent !== cut) n.textContent = cut; // assigning the same text would drop the selection
}
const attr = (n, name, value) => value == null ? n.removeAttribute(name) : n.setAttribute(name, value);
const show = (n, on) => { n.hidden = !on; };
function fill(n, level, words) {
  for (const e of [n, n.parts.mark]) if (e) attr(e, "data-level", level);
  for (const [part, text] of Object.entries(words)) setText(n.parts[part], text);
}
// list makes the children of parent match items, by key. Existing elements are reused. The element
// that has the focus is never moved: the other elements move around it.
function list(parent, template, items, key, each) {
  const old = new Map([...parent.children].filter(n => "key" in n).map(n => [n.key, n])), keys = new Set(items?.map(key));
  for (const [k, n] of old) if (!keys.has(k)) remove(n);
  let at = [...parent.children].find(n => "key" in n) ?? null;
  for (const item of items ?? []) {
    const k = key(item), n = old.get(k) ?? Object.assign(make(template), { key: k });
    old.delete(k); // an item with the same key gets a new element
    while (at && at !== n && n.contains(document.activeElement)) [at] = [at.nextElementSibling, parent.append(at)];
    if (at === n) at = n.nextElementSibling;
    else parent[n.isConnected && parent.moveBefore ? "moveBefore" : "insertBefore"](n, at); // moveBefore preserves scroll positions
    each(n, item);
  }
}
const lines = (parent, items) => list(parent, "text", items?.map((text, i) => ({ text, i })), x => x.i, (n, x) => setText(n, x.text));
// remove deletes an element. If it has the focus, a neighbour gets it.
function remove(n) {
  const next = n.nextElementSibling ?? n.previousElementSibling;
  if (n.contains(document.activeElement)) (next?.querySelector("button") ?? $("filter")).focus();
  n.remove();
}

// Formatting.
const join = (...parts) => parts.filter(Boolean).join(" · ");
const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const name = p => `${p.namespace}/${p.name}`;
function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  const text = d ? `${d} d ${h % 24} h` : h ? `${h} h ${m % 60} min` : m >= 10 ? `${m} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
  return text.replace(/(?<=\D) 0 \w+$/, "");
}
const ago = time => time ? duration(now - Date.parse(time)) : "";
const clock = time => new Date(time).toLocaleTimeString("en-GB");
function bytes(n) {
  let unit = 0;
  for (; n >= 1000 && unit < 6; unit++) n /= 1024;
  return `${n < 10 && unit ? n.toFixed(1) : Math.round(n)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit]}`;
}
const quantity = (q = "?") => /^\d+(Ki)?$/.test(q) ? bytes(parseInt(q) * (q.endsWith("Ki") ? 1024 : 1)) : q;
const cores = c => c < 1 ? `${Math.round(c * 1000)}m` : c.toFixed(2);
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const amount = (signal, n) => /inodes|pid/i.test(signal) ? compact.format(n) : bytes(n);

// Levels: how severe a state is.
const severity = ["bad", "warn", "ok", "done"];
const failedState = /BackOff|Err|OOM|Evict|Fail|Invalid|Never|NotFound|Unknown|Deadline|Preempt|Signal:|ExitCode:|Unexpected|OutOf|Lost/i;
const regular = p => p.containers.filter(c => c.kind === "main" || c.kind === "sidecar").length;
const podLevel = p => p.phase === "Failed" || failedState.test(p.state) ? "bad" : p.phase === "Succeeded" && p.state !== "Terminating" ? "done"
  : p.state === "Running" && p.ready >= regular(p) ? "ok" : "warn";
const containerLevel = c => c.state === "running" ? c.ready || c.kind === "init" || c.kind === "ephemeral" ? "ok" : "warn"
  : c.state === "Completed" ? "done" : failedState.test(c.state) || c.exitCode ? "bad" : "warn";

function showNode(s) {
  const { conditions = [], nodeInfo = {}, allocatable = {} } = s.node.status ?? {}, ready = conditions.find(c => c.type === "Ready");
  const fine = ready?.status === "True", pressures = conditions.filter(c => c.type !== "Ready" && c.status === "True");
  const sum = figure => s.pods.reduce((n, p) => n + (p.usage?.[figure] ?? 0), 0);
  setText($("node"), s.node.metadata?.name);
  attr($("readyMark"), "data-level", !fine ? "bad" : pressures.length ? "warn" : "ok");
  setText($("readyText"), join(fine ? "Ready" : "Not ready: " + (ready?.message ?? "its status is unknown"), ...pressures.map(c => `${c.type}: ${c.message ?? ""}`)));
  list($("facts"), "fact", [
    ["Runtime", `${s.runtime.name} ${s.runtime.version}`], ["Agent up", ago(s.agent.started)],
    ["Pods use", `${cores(sum("cpuCores"))} CPU · ${bytes(sum("memoryBytes"))}`],
    ["Allocatable", `${allocatable.cpu ?? "?"} CPU · ${quantity(allocatable.memory)} · ${allocatable.pods ?? "?"} pods`],
    ["System", join(nodeInfo.osImage, nodeInfo.kernelVersion, nodeInfo.architecture)],
  ], f => f[0], (n, [title, value]) => fill(n, undefined, { title, value }));
  setText($("agent"), join(`${s.agent.name} ${s.agent.version}`, "since " + new Date(s.agent.started).toLocaleString("en-GB"),
    `${count(s.agent.adopted, "running pod")} adopted`, s.runtime.endpoint));
  show($("problems"), s.problems?.length > 0);
  lines($("problemList"), s.problems);
  list($("managers"), "manager", s.managers, m => m.name, (n, m) => {
    fill(n, m.ok ? "ok" : "bad", { name: m.name, how: m.ok ? " is healthy" : " is unhealthy", message: m.message });
    n.title = m.message ?? "";
  });
  list($("signals"), "signal", s.signals, x => x.name, showSignal);
  return fine ? join("ready", ...pressures.map(c => c.type)) : "not ready";
}
function showSignal(n, s) {
  const known = s.time && s.capacity > 0, crossed = s.thresholds?.some(t => t.since), meter = n.parts.meter;
  const at = free => known ? Math.min(1, Math.max(0, 1 - free / s.capacity)) : 0; // the used part of the bar, from 0 to 1
  fill(n, crossed ? "bad" : undefined, { name: s.name, free: known ? `${amount(s.name, s.available)} of ${amount(s.name, s.capacity)} free` : "unknown" });
  attr(meter, "aria-label", s.name + ", used");
  attr(meter, "aria-valuenow", Math.round(at(s.available) * 100));
  attr(meter, "aria-valuetext", n.parts.free.textContent + (crossed ? ", below a threshold" : ""));
  n.parts.bar.style.setProperty("--at", at(s.available));
  list(n.parts.ticks, "text", known ? s.thresholds : [], t => t.text, (tick, t) => tick.style.setProperty("--at", at(t.value)));
  list(n.parts.limits, "limit", s.thresholds, t => t.text + t.graceSeconds, (limit, t) => {
    const below = t.text.replace(s.name + "<", "") + (t.text.endsWith("%") && known ? ` (${amount(s.name, t.value)})` : "");
    const text = `evicts below ${below}` + (t.graceSeconds ? ` after ${duration(t.graceSeconds * 1000)}` : "");
    fill(limit, t.since ? "bad" : undefined, { text: text + (t.since ? `\ncrossed for ${ago(t.since)}` : "") });
  });
}

// Pods with problems come first, but nothing moves while the table has the pointer or the focus.
const rows = () => [...$("podTable").tBodies];
function showPods(pods) {
  const mouse = matchMedia("(hover: hover)").matches, busy = rows().some(n => n.contains(document.activeElement) || mouse && n.matches(":hover"));
  const key = p => p.uid || name(p), places = new Map(busy ? rows().map((n, i) => [n.key, i]) : []);
  const place = p => places.get(key(p)) ?? pods.length, rank = p => severity.indexOf(podLevel(p));
  list($("podTable"), "pod", pods.toSorted((a, b) => place(a) - place(b) || rank(a) - rank(b) || (name(a) < name(b) ? -1 : 1)), key, showPod);
  filter();
}
function showPod(n, p) {
  const t = n.parts, event = p.events?.[0], probes = p.containers.flatMap(c => c.probes ?? []), bad = probes.filter(x => x.result !== "success");
  const newest = probes.map(x => x.time).filter(Boolean).sort().at(-1);
  if (!n.pod) {
    attr(t.open, "aria-controls", t.detail.id = "pod-" + crypto.getRandomValues(new Uint32Array(2)).join("-"));
    t.row.addEventListener("click", e => (e.target.closest("button") || getSelection().isCollapsed) && toggle(n));
  }
  fill(Object.assign(n, { pod: p }), podLevel(p), {
    state: p.state, namespace: p.namespace + "/", name: p.name, ready: `${p.ready}/${regular(p)}`, restarts: p.restarts, ip: p.ip, age: ago(p.started),
    probes: join(bad.length ? [...new Set(bad.map(x => x.kind))].join(", ") : probes.length && `${probes.length} ok`, ago(newest)),
    cpu: p.usage?.cpuCores === undefined ? undefined : cores(p.usage.cpuCores), memory: p.usage && bytes(p.usage.memoryBytes), last: event && `${event.reason}: ${event.message}`,
  });
  attr(t.probeMark, "data-level", bad.some(x => x.result === "failure") ? "bad" : bad.length ? "warn" : probes.length ? "ok" : undefined);
  if (n.detail) showDetail(n);
}
function toggle(n) {
  n.detail = n.detail ? undefined : make("detail");
  attr(n.parts.open, "aria-expanded", !!n.detail);
  show(n.parts.detail, n.detail);
  n.parts.cell.replaceChildren(...n.detail ? [n.detail] : []);
  if (n.detail) showDetail(n);
}
function showDetail(n) {
  const p = n.pod, d = n.detail, t = d.parts, e = d.explanation;
  if (d.state !== p.state || now - d.at >= explainEvery) explain(n, d);
  lines(t.why, e?.why ?? ["…"]);
  const next = e?.next?.length ? e.next : [{ what: "nothing, unless something changes" }];
  lines(t.next, e && next.map(s => s.at ? `in ${duration(Date.parse(s.at) - now)} (${clock(s.at)}): ${s.what}` : s.what));
  for (const part of ["evictionOrder", "plan"]) setText(t[part], e?.[part], 20_000);
  list(t.events, "event", p.events, x => x.number, (node, x) => showEvent(node, x, ""));
  list(t.containers, "container", p.containers, c => `${c.kind} ${c.name}`, (node, c) => showContainer(node, c, p));
}
async function explain(n, d) {
  [d.state, d.at] = [n.pod.state, now];
  const failed = e => ({ why: ["could not load the explanation: " + e.message] });
  d.explanation = await get("explain/" + pathOf(n.pod.namespace, n.pod.name)).then(a => a.json()).catch(failed);
  if (n.detail === d) showDetail(n);
}
function showContainer(n, c, p) {
  const t = n.parts, u = c.usage, tailIt = () => tail(n, "../" + pathOf("containerLogs", p.namespace, p.name, c.name));
  if (!t.log.ontoggle) attr(t.lines, "aria-label", "Log of container " + c.name);
  t.log.ontoggle = t.previous.onchange = tailIt;
  fill(n, containerLevel(c), {
    name: c.name, image: c.image, title: `Log, last ${logLines} lines`,
    state: join(c.state, c.since && `${c.state === "running" ? "for" : "since"} ${ago(c.since)}`, c.exitCode != null && `exit code ${c.exitCode}`),
    facts: join(c.kind, c.ready ? "ready" : "not ready", count(c.restarts, "restart"), u?.cpuCores !== undefined && cores(u.cpuCores) + " CPU", u && bytes(u.memoryBytes)),
  });
  list(t.probes, "probe", c.probes, x => x.kind, (node, x) => fill(node, { success: "ok", failure: "bad" }[x.result] ?? "warn", {
    text: join(`${x.kind} probe: ${x.result}`, x.time && `${ago(x.time)} ago`, x.durationMs && `took ${x.durationMs.toFixed(1)} ms`, x.output?.trim()),
  }));
  show(t.before, c.restarts > 0);
  if (t.log.open) tailIt();
}
// tail loads the end of a log. It scrolls along if the end is visible, and pauses while text is selected.
async function tail(n, path) {
  const pre = n.parts.lines, picked = getSelection();
  if (!n.parts.log.open || n.reading || !picked.isCollapsed && pre.contains(picked.anchorNode)) return;
  n.reading = true;
  const text = await get(`${path}?tailLines=${logLines}&limitBytes=${logBytes}&previous=${n.parts.previous.checked}`, "text/plain").then(a => a.text()).catch(e => "could not load the log: " + e.message);
  const end = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
  setText(pre, text || "The log is empty.", logBytes);
  if (end) pre.scrollTop = pre.scrollHeight;
  n.reading = false;
}

function showEvent(n, e, about) {
  const container = e.fieldPath?.match(/\{(.*)\}/)?.[1];
  fill(n, e.type === "Normal" ? "done" : "warn", {
    time: clock(e.time), reason: e.reason, about: join(about, container), message: e.message + (e.count > 1 ? ` (${e.count} times)` : ""),
  });
  attr(n.parts.time, "datetime", e.time);
}
const eventKey = e => [e.kind, e.namespace, e.name, e.fieldPath, e.type, e.reason, e.message].join("\0");
function showEvents(news) {
  const again = new Set(news.filter(e => e.count > 1).map(eventKey));
  events = [...news.reverse(), ...events.filter(e => !again.has(eventKey(e)))].slice(0, keptEvents);
  list($("events"), "event", events, e => e.number, (n, e) => showEvent(Object.assign(n, { event: e }), e, e.namespace ? name(e) : e.name));
  filter();
}
async function follow() {
  if (stream || document.hidden) return;
  const mine = stream = new AbortController();
  let watchdog = setTimeout(() => mine.abort(), streamTimeout);
  try {
    const answer = await get(`events?watch&since=${last}`, "text/event-stream", mine.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "", piece; !(piece = await reader.read()).done && !mine.signal.aborted;) {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => mine.abort(), streamTimeout);
      const got = (rest + piece.value).split("\n");
      rest = got.pop();
      const news = got.filter(l => l.startsWith("data: ")).map(l => JSON.parse(l.slice(6)));
      last = news.at(-1)?.number ?? last;
      if (news.length) showEvents(news.filter(e => e.kind !== "Agent")); // events of kind Agent report lost events
    }
  } catch (e) {
    show($("eventsCard"), e.status !== 404); // the agent may have no events
  } finally {
    clearTimeout(watchdog);
    mine.abort();
    if (stream === mine) stream = undefined; // the next poll opens a new stream
  }
}

function filter() {
  const terms = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const hit = (...words) => terms.every(t => words.join(" ").toLowerCase().includes(t));
  let shown = 0, wrong = 0;
  for (const n of rows()) {
    const p = n.pod, on = hit(name(p), p.state, p.phase, p.ip, n.parts.last.textContent, ...p.containers.map(c => `${c.name} ${c.image} ${c.state}`));
    show(n, on);
    shown += on;
    wrong += podLevel(p) === "bad";
  }
  for (const n of $("events").children) show(n, hit(name(n.event), n.event.reason, n.event.message, n.event.type));
  setText($("count"), (terms.length ? `${shown} of ` : "") + count(rows().length, "pod") + (wrong ? `, ${wrong} with problems` : ""));
  setText($("none"), shown || !now ? "" : terms.length ? "No pod matches the filter." : "There are no pods.");
  document.title = (wrong ? `(${wrong}) ` : "") + $("node").textContent;
}

// announce reports changes of states to screen readers.
function announce(states) {
  const was = announced ?? states, news = [...states].filter(([k, v]) => was.get(k) !== v).map(([k, v]) => `${k}: ${v}`);
  for (const k of was.keys()) if (!states.has(k)) news.push(`${k}: removed`);
  announced = states;
  if (news.length) setText($("announcement"), (news.length > 4 ? `${news.length} changes: ` : "") + news.slice(0, 4).join("; "));
}
function showStatus(s) {
  now = Date.parse(s.now);
  if (started !== s.agent.started) { // the agent was restarted: event numbers start again
    stream?.abort();
    [started, events, last, stream] = [s.agent.started, [], 0, undefined];
    $("events").replaceChildren();
  }
  for (const p of s.pods) p.containers ??= [];
  const managers = s.managers.map(m => ["manager " + m.name, m.ok ? "healthy" : "unhealthy"]);
  announce(new Map([["node", showNode(s)], ...managers, ...s.pods.map(p => ["pod " + name(p), p.state])]));
  showPods(s.pods);
  setText($("live"), "live · " + clock(s.now));
  show($("banner"), false);
  failures = 0;
  follow();
}
function showUnreachable(e) {
  if (!failures++) since = Date.now();
  const why = e.name === "TimeoutError" ? "no answer in time" : e.message;
  setText($("bannerText"), `The agent has not answered since ${clock(since)} (${why}).` + (now ? ` This page shows its state at ${clock(now)}.` : ""), 400);
  setText($("live"), now ? `as of ${clock(now)}` : "not connected");
  show($("banner"), true);
}
async function poll() {
  clearTimeout(timer);
  if (polling || document.hidden || $("ask").open) return;
  polling = true;
  try {
    showStatus(await (await get("status")).json());
  } catch (e) {
    e.status === 401 ? askToken() : showUnreachable(e);
  } finally {
    polling = false;
    timer = setTimeout(poll, Math.min(period * 2 ** failures, maxPeriod));
  }
}
function setToken(text) {
  sessionStorage.setItem("token", token = text);
  show($("forget"), text !== "");
}
function askToken() {
  setText($("askText"), token ? "The agent refused the token." : "The token is kept until this tab is closed.");
  setToken("");
  $("ask").showModal();
}

$("filter").oninput = filter;
$("forget").onclick = () => { setToken(""); location.reload(); };
$("tokenForm").onsubmit = e => { e.preventDefault(); setToken($("token").value); e.target.reset(); $("ask").close(); };
$("again").onclick = $("ask").onclose = window.ononline = poll;
document.onvisibilitychange = () => document.hidden ? stream?.abort() : poll();
setToken(token);
poll();
