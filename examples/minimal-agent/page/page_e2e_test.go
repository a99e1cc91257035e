//go:build e2e && linux

package page_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// shots is the environment variable with the folder for screenshots of the page. If it is
// empty, no screenshots are saved.
const shots = "KUBEPARTS_SHOTS"

// look saves a screenshot of the page, if a folder is set.
func (b *tab) look(name string) {
	b.t.Helper()
	dir := os.Getenv(shots)
	if dir == "" {
		dir = b.t.TempDir()
	}
	b.shoot(filepath.Join(dir, name+".png"), true)
}

// openPage opens the page of an agent, and waits for its pods.
func openPage(t *testing.T, a *canned, width, height int) *tab {
	t.Helper()
	b := openTab(t, width, height)
	b.open(a.start(kubeletapi.Access{}))
	b.wait(fmt.Sprintf(`document.querySelectorAll("#podTable tbody").length === %d`, len(a.status.Pods)))
	b.wait(fmt.Sprintf(`document.querySelectorAll("#events li").length >= %d`, len(a.status.Pods)))
	return b
}

// polled waits until the page shows a status that was requested after this call.
func (b *tab) polled(a *canned) {
	b.t.Helper()
	before, live := a.asked.Load(), eval[string](b, `document.getElementById("live").textContent`)
	until(b.t, "the page asks again", func() error {
		if a.asked.Load() < before+2 {
			return os.ErrNotExist
		}
		return nil
	})
	b.wait(fmt.Sprintf(`document.getElementById("live").textContent !== %q`, live))
}

func TestE2EPage_ShowsTheStatus(t *testing.T) {
	a := newAgent(t)
	b := openPage(t, a, 1400, 1000)
	text := func(selector string) string {
		return eval[string](b, fmt.Sprintf(`document.querySelector(%q).innerText`, selector))
	}
	require.Equal(t, "edge-07", text("h1"))
	require.Equal(t, "(1) edge-07", eval[string](b, "document.title"))
	require.Contains(t, text("header"), "Ready · DiskPressure: node has disk pressure")
	require.Contains(t, text("#facts"), "containerd v2.4.2")
	require.Contains(t, text("#facts"), "2 d 3 h")
	require.Contains(t, text("#facts"), "4 CPU · 7.7 GiB · 110 pods")
	require.Contains(t, text("#managers"), "last pass 40s ago: 12 images")
	require.Contains(t, text("#problems"), `unknown field "spec.contaners"`)
	require.Contains(t, text("#signals"), "7.0 GiB of 100 GiB free")
	require.Contains(t, text("#signals"), "evicts below 10% (786 MiB) after 1 min 30 s")
	require.Contains(t, text("#signals"), "crossed for 3 min")
	require.Contains(t, text("#signals"), "unknown")

	rows := eval[[]string](b, `[...document.querySelectorAll("#podTable tr.row")].map(r => [...r.cells].map(c => c.innerText).join("|"))`)
	require.Len(t, rows, 7)
	for i, want := range []string{
		`^CrashLoopBackOff\|default/orders\|0/1\|7\|\|34m\|48 MiB\|10.88.0.6\|12 min\|BackOff: Back-off restarting failed container main in pod orders: <script>`,
		`^Running\|default/search\|1/2\|2\|readiness · \d+ s\|`,
		`^ContainerCreating\|default/thumbs\|0/1\|0\|\|\|\|\|\d+ s\|`,
		`^Running\|default/cache\|1/1\|0\|1 ok · \d+ s\|`,
		`^Running\|default/dns\|`, `^Running\|default/web\|2/2\|`, `^Completed\|default/batch\|`,
	} {
		require.Regexp(t, want, rows[i])
	}
	// The newest event is first, and a Warning has a different mark.
	require.Contains(t, eval[string](b, `document.querySelector("#events li").innerText`), "default/web")
	require.Contains(t, eval[string](b, `document.querySelector("#events li[data-level=warn]").innerText`), hostile[:40])
	a.events.Add(api.Event{Type: "Warning", Reason: "Unhealthy", Message: "news", Kind: "Pod", Namespace: "default", Name: "search"})
	b.wait(`document.querySelector("#events li").innerText.includes("Unhealthy")`)
	a.events.Add(api.Event{Type: "Warning", Reason: "Unhealthy", Message: "news", Kind: "Pod", Namespace: "default", Name: "search"})
	b.wait(`document.querySelector("#events li").innerText.includes("(2 times)") && document.querySelectorAll("#events li").length === 9`)

	eval[any](b, `document.getElementById("filter").focus()`)
	b.write("search RUNNING")
	require.Equal(t, "1 of 7 pods, 1 with problems", text("#count"))
	require.Equal(t, 1, eval[int](b, `[...document.querySelectorAll("#podTable tbody")].filter(n => !n.hidden).length`))
	b.write(" nothing is like this")
	require.Equal(t, "No pod matches the filter.", text("#none"))
	require.Empty(t, b.complaints())
}

func TestE2EPage_InterpretsNoTextAsMarkup(t *testing.T) {
	a := newAgent(t)
	a.change(func(s *api.Status) {
		s.Node.Name, s.Runtime.Name, s.Agent.Version = hostile, hostile, hostile
		s.Problems = append(s.Problems, hostile, hostile)
		s.Managers[0].OK, s.Managers[0].Message = false, hostile
		s.Signals[0].Name, s.Signals[0].Thresholds[0].Text = hostile, hostile
		p := pod(s, "orders")
		p.UID, p.State, p.IP = hostile, hostile, hostile
		c := &p.Containers[0]
		c.Name, c.Image, c.State, c.Kind = hostile, hostile, hostile, hostile
		c.Probes = []api.Probe{{Kind: hostile, Result: hostile, Output: hostile}}
		s.Pods = append(s.Pods, *p) // the agent never sends the same UID twice
		s.Pods[1].Containers, s.Pods[1].Events = nil, nil
	})
	b := openTab(t, 360, 740)
	b.open(a.start(kubeletapi.Access{}))
	b.wait(`document.querySelectorAll("#podTable tbody").length === 8`)
	eval[any](b, `document.querySelectorAll("#podTable .open").forEach(e => e.click())`)
	b.wait(`document.querySelector("#podTable").innerText.includes("could not load the explanation: no such pod")`)
	eval[any](b, `document.querySelectorAll("#podTable details").forEach(e => { e.open = true })`)
	b.wait(`document.querySelector("#podTable pre[role=region]").innerText.includes("GET /healthz")`)
	b.polled(a)
	require.Equal(t, "owned", regexp.MustCompile(`owned`).FindString(eval[string](b, "document.title")), "the title must be the node's name")
	require.NotEqual(t, "owned", eval[string](b, "document.title"))
	require.Equal(t, 1, eval[int](b, "document.scripts.length"))
	require.Zero(t, eval[int](b, `document.querySelectorAll("img, iframe, object, a:not(.skip)").length`))
	require.Contains(t, eval[string](b, "document.body.textContent"), hostile)
	require.LessOrEqual(t, eval[int](b, "document.scrollingElement.scrollWidth"), 360)
	for _, c := range b.complaints() {
		require.Contains(t, c, "404", "the only error must be the missing explanation of pod batch")
	}
}

func TestE2EPage_WorksWithTheKeyboard(t *testing.T) {
	b := openPage(t, newAgent(t), 1400, 1000)
	focus := func() string {
		return eval[string](b, `(document.activeElement.innerText || document.activeElement.id).trim().split("\n")[0]`)
	}
	seen := func() {
		t.Helper()
		require.Equal(t, "solid 2px", eval[string](b, `(s => s.outlineStyle + " " + s.outlineWidth)(getComputedStyle(document.activeElement))`))
		require.True(t, eval[bool](b, `(r => r.top < innerHeight && r.bottom > 0 && r.width > 0)(document.activeElement.getBoundingClientRect())`))
	}
	var order []string
	for range 4 {
		b.press("Tab")
		seen()
		order = append(order, focus())
	}
	require.Equal(t, []string{"Skip to the pods", "filter", "default/orders", "default/search"}, order)

	// Both keys open and close a row.
	for _, key := range []string{"Enter", " "} {
		b.press(key)
		b.wait(`document.activeElement.getAttribute("aria-expanded") === "true"`)
		b.wait(`document.getElementById(document.activeElement.getAttribute("aria-controls")).innerText.includes("number 2 of 6 in the eviction order")`)
		b.press(key)
		b.wait(`document.activeElement.getAttribute("aria-expanded") === "false"`)
		require.True(t, eval[bool](b, `document.getElementById(document.activeElement.getAttribute("aria-controls")).hidden`))
	}
	b.press("Enter")
	b.wait(`row("search").innerText.includes("in 40 s") || row("search").innerText.includes("in 39 s")`)
	detail := eval[string](b, `row("search").innerText`)
	for _, want := range []string{"its sandbox stays", "readiness probe: failure", "HTTP probe failed with statuscode: 503", "sidecar · ready", "registry.example/mesh/proxy:1.30"} {
		require.Contains(t, detail, want)
	}
	b.press("Tab")
	require.Equal(t, "Plan", focus())
	b.press("Enter", "Tab")
	require.Contains(t, focus(), "start container main")
	b.press("Tab")
	require.Equal(t, "Log, last 100 lines", focus())
	b.press(" ")
	b.wait(`row("search").innerText.includes("GET /healthz 200 1ms")`)
	b.press("Tab")
	require.Equal(t, "INPUT", eval[string](b, "document.activeElement.tagName"), "the focus must be in the input for the log of the previous instance")
	b.press("Tab")
	require.Equal(t, "Log of container main", eval[string](b, `document.activeElement.getAttribute("aria-label")`))
	seen()
	require.Empty(t, b.complaints())
}

func TestE2EPage_UpdatesInPlace(t *testing.T) {
	a := newAgent(t)
	b := openPage(t, a, 1400, 1000)
	const painted = `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))`
	eval[any](b, painted)
	eval[any](b, `window.shift = [], new PerformanceObserver(l => l.getEntries().forEach(e => shift.push(...e.sources.map(s => (s.node.outerHTML ?? s.node.data).slice(0, 120) + JSON.stringify([s.previousRect, s.currentRect]))))).observe({type: "layout-shift", buffered: false}), 0`)
	eval[any](b, `window.kept = row("web"), kept.querySelector(".open").focus()`)

	// Values change, but no row may move.
	a.change(func(s *api.Status) {
		for i := range s.Pods {
			if u := s.Pods[i].Usage; u != nil {
				u.CPUCores, u.MemoryBytes = new(3.987), uint64(1023*gib)
			}
		}
		s.Signals[1].Available = 2000 * mib
		s.Managers[3].Message = "7 pods and a long note that has no end, and another, and one more"
	})
	b.polled(a)
	require.Contains(t, eval[string](b, `row("web").innerText`), "3.99")
	eval[any](b, painted)
	require.Empty(t, eval[[]string](b, "shift"), "elements that moved")
	require.Empty(t, eval[string](b, `document.getElementById("announcement").textContent`), "changed figures must not be announced")

	// A row that has the focus does not move when its pod fails. The failure is announced,
	// and the row stays open.
	b.press("Enter")
	b.wait(`kept.innerText.includes("number 2 of 6")`)
	eval[any](b, `kept.querySelector("details[data-t=log]").open = true`)
	b.wait(`kept.innerText.includes("GET /healthz")`)
	eval[any](b, `kept.querySelector("pre[role=region]").scrollTop = 5`)
	const index = `[...document.getElementById("podTable").tBodies].indexOf(kept)`
	before := eval[int](b, index)
	a.change(func(s *api.Status) {
		p := pod(s, "web")
		p.State, p.Ready = "CrashLoopBackOff", 0
		s.Managers[0].OK, s.Managers[0].Message = false, "connection refused"
	})
	a.mu.Lock()
	a.log += "one more line\n"
	a.mu.Unlock()
	b.wait(`kept.innerText.startsWith("CrashLoopBackOff")`)
	b.wait(`kept.innerText.includes("one more line")`)
	require.Equal(t, "manager runtime: unhealthy; pod default/web: CrashLoopBackOff", eval[string](b, `document.getElementById("announcement").textContent`))
	require.Equal(t, before, eval[int](b, index), "a row with the focus must not move")
	require.True(t, eval[bool](b, `document.activeElement === kept.querySelector(".open")`))
	require.True(t, eval[bool](b, `kept.isConnected && document.activeElement.getAttribute("aria-expanded") === "true"`))
	require.Equal(t, 5, eval[int](b, `kept.querySelector("pre[role=region]").scrollTop`), "the scroll position of the log must be kept")
	require.Contains(t, eval[string](b, `document.getElementById("managers").innerText`), "connection refused")

	// Without the focus, the row moves to its sorted position.
	eval[any](b, `document.activeElement.blur()`)
	b.wait(index + ` === 1`)
	require.True(t, eval[bool](b, `!kept.querySelector("[data-t=detail]").hidden`))
	require.Equal(t, 5, eval[int](b, `kept.querySelector("pre[role=region]").scrollTop`), "the scroll position of the log must be kept")

	// When a row with the focus is removed, another row gets the focus.
	eval[any](b, `row("cache").querySelector(".open").focus()`)
	a.change(func(s *api.Status) { s.Pods = append(s.Pods[:1:1], s.Pods[2:]...) })
	b.wait(`document.querySelectorAll("#podTable tbody").length === 6`)
	require.Equal(t, "BUTTON", eval[string](b, "document.activeElement.tagName"))
	require.Equal(t, "pod default/cache: removed", eval[string](b, `document.getElementById("announcement").textContent`))
	require.Empty(t, b.complaints())
}

func TestE2EPage_ReconnectsToARestartedAgent(t *testing.T) {
	a := newAgent(t)
	b := openPage(t, a, 1400, 1000)
	require.False(t, eval[bool](b, `document.getElementById("banner").checkVisibility()`))
	require.Empty(t, b.complaints())
	eval[any](b, `window.same = true`)
	a.stop()
	b.wait(`document.getElementById("banner").checkVisibility()`)
	banner := `document.getElementById("bannerText").innerText`
	require.Regexp(t, `^The agent has not answered since \d\d:\d\d:\d\d \(.+\)\. This page shows its state at \d\d:\d\d:\d\d\.$`, eval[string](b, banner))
	require.Regexp(t, `^as of`, eval[string](b, `document.getElementById("live").innerText`))
	require.Contains(t, eval[string](b, `row("orders").innerText`), "CrashLoopBackOff", "the page must show the last known status")
	require.Equal(t, "alert", eval[string](b, `document.getElementById("banner").getAttribute("role")`))
	b.look("banner")
	require.Empty(t, b.contrasts())
	b.wait(`failures >= 2`)

	a.change(func(s *api.Status) { s.Agent.Started, s.Node.Name = time.Now(), "edge-08" })
	a.start(kubeletapi.Access{})
	eval[any](b, `document.getElementById("again").click()`)
	b.wait(`document.querySelector("h1").innerText === "edge-08" && !document.getElementById("banner").checkVisibility()`)
	b.wait(`document.querySelectorAll("#events li").length === 8`)
	require.True(t, eval[bool](b, "window.same"), "the page must not be loaded again")

	// A hidden tab sends no requests. When the tab becomes visible, it sends a request at once.
	eval[any](b, `Object.defineProperty(document, "hidden", { get: () => window.away, configurable: true }), window.away = true, document.dispatchEvent(new Event("visibilitychange"))`)
	b.wait(`!stream && !polling`)
	asked := a.asked.Load()
	<-time.After(3 * time.Second)
	require.Equal(t, asked, a.asked.Load())
	eval[any](b, `window.away = false, document.dispatchEvent(new Event("visibilitychange"))`)
	until(t, "the page queries the agent again", func() error {
		if a.asked.Load() == asked {
			return os.ErrNotExist
		}
		return nil
	})
	b.wait(`!!stream`)
}

func TestE2EPage_PromptsForTheToken(t *testing.T) {
	a := newAgent(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret\n"), 0o600))
	b := openTab(t, 1400, 1000)
	b.open(a.start(kubeletapi.Access{TokenFile: token}))
	b.wait(`document.getElementById("ask").open`)
	require.Equal(t, "token", eval[string](b, "document.activeElement.id"))
	b.look("token")
	require.Empty(t, b.contrasts())
	b.write("wrong")
	b.press("Enter")
	b.wait(`document.getElementById("askText").innerText.includes("refused")`)
	b.write("secret")
	b.press("Enter")
	b.wait(`document.querySelectorAll("#podTable tbody").length === 7`)
	b.wait(`document.querySelectorAll("#events li").length === 8`)
	eval[any](b, `row("orders").querySelector(".open").click()`)
	b.wait(`row("orders").innerText.includes("number 2 of 6")`)
	eval[any](b, `window.old = true`)
	b.do("Page.reload", nil, nil)
	b.wait(`!window.old && document.readyState === "complete" && document.querySelectorAll("#podTable tbody").length === 7`)
	require.False(t, eval[bool](b, `document.getElementById("ask").open`), "the token must be requested only once")
	require.NotContains(t, eval[string](b, "location.href"), "secret")
	eval[any](b, `document.getElementById("forget").click()`)
	b.wait(`document.readyState === "complete" && document.getElementById("ask").open`)
}

// contrasts returns the texts whose contrast is below 4.5, the minimum of WCAG AA.
func (b *tab) contrasts() []string {
	b.t.Helper()
	return eval[[]string](b, `(() => {
		const parse = c => c.match(/[\d.]+/g).map(Number);
		const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
			.reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
		const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] !== 0) return c; } return [255, 255, 255]; };
		const found = [];
		let looked = 0;
		const look = (e, style, text) => {
			const [a, b] = [light(parse(style.color)), light(behind(e))].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
			looked++;
			if (ratio < 4.5) found.push(ratio.toFixed(2) + " " + style.color + " on " + behind(e) + ": " + text);
		};
		for (const e of document.querySelectorAll("body *")) {
			if (!e.checkVisibility()) continue;
			const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join("");
			if (text) look(e, getComputedStyle(e), text);
			const before = getComputedStyle(e, "::before");
			if (!["none", "normal"].includes(before.content)) look(e, before, before.content);
		}
		if (document.getElementById("filter").checkVisibility()) look(document.getElementById("filter"), getComputedStyle(document.getElementById("filter"), "::placeholder"), "placeholder");
		return looked > 3 ? found : ["only " + looked + " texts were looked at"];
	})()`)
}

func TestE2EPage_FitsEveryScreen(t *testing.T) {
	a := newAgent(t)
	a.change(func(s *api.Status) {
		p := s.Pods[1]
		p.Name, p.UID, p.IP = strings.Repeat("unbroken", 31), "long", "fd00:1234:5678:9abc:def0:1234:5678:9abc"
		s.Pods = append(s.Pods, p)
		s.Managers[0].OK, s.Managers[0].Message = false, "no answer from "+strings.Repeat("x", 300)
	})
	b := openPage(t, a, 1400, 1000)
	eval[any](b, `row("orders").querySelector(".open").click(), row("search").querySelector(".open").click()`)
	b.wait(`row("search").innerText.includes("number 2 of 6")`)
	eval[any](b, `document.querySelectorAll("#podTable details").forEach(e => { e.open = true })`)
	b.wait(`row("search").innerText.includes("GET /healthz 200 1ms")`)
	eval[any](b, `document.getElementById("banner").hidden = false, document.getElementById("bannerText").textContent = "it does not answer"`)
	for _, scheme := range []string{"light", "dark"} {
		b.media("prefers-color-scheme", scheme)
		for _, width := range []int{320, 360, 768, 1100, 1400, 2200} {
			b.size(width, 900)
			require.LessOrEqual(t, eval[int](b, "document.scrollingElement.scrollWidth"), width, "the page must not scroll sideways")
			require.Empty(t, b.contrasts(), "%s at %d", scheme, width)
			small := eval[[]string](b, `[...document.querySelectorAll("button, summary, input:not([type=checkbox])")].filter(e => e.checkVisibility() && e.getBoundingClientRect().height < (innerWidth < 600 ? 28 : 19)).map(e => e.innerText || e.id)`)
			if width == 360 || width == 1400 {
				b.look(fmt.Sprintf("%s-%d", scheme, width))
			}
			require.Empty(t, small, "targets that are too small at width %d", width)
		}
	}
	require.NotEqual(t, eval[string](b, `getComputedStyle(document.documentElement).backgroundColor`), func() string {
		b.media("prefers-color-scheme", "light")
		return eval[string](b, `getComputedStyle(document.documentElement).backgroundColor`)
	}())
	b.media("prefers-reduced-motion", "no-preference")
	moving := `[...document.querySelectorAll("*")].filter(e => parseFloat(getComputedStyle(e).transitionDuration) > 0).length`
	require.NotZero(t, eval[int](b, moving))
	b.media("prefers-reduced-motion", "reduce")
	require.Zero(t, eval[int](b, moving))
	require.Zero(t, eval[int](b, `document.getAnimations().length`))
	require.Empty(t, b.complaints())
}

// TestE2EPage_Accessibility checks the accessibility tree, with the pods as a table and as
// cards.
func TestE2EPage_Accessibility(t *testing.T) {
	b := openPage(t, newAgent(t), 1400, 1000)
	for _, width := range []int{1400, 360} {
		b.size(width, 900)
		var tree struct {
			Nodes []struct {
				Ignored bool
				Role    struct{ Value string }
				Name    struct{ Value string }
				Value   struct{ Value any }
			}
		}
		b.do("Accessibility.getFullAXTree", nil, &tree)
		names := map[string][]string{}
		for _, n := range tree.Nodes {
			if !n.Ignored {
				names[n.Role.Value] = append(names[n.Role.Value], n.Name.Value)
			}
		}
		require.Len(t, names["banner"], 1)
		require.Len(t, names["main"], 1)
		require.Len(t, names["contentinfo"], 1)
		require.Equal(t, []string{"Problems with manifests", "Managers", "Eviction signals", "Pods", "Events"}, names["region"])
		require.Equal(t, []string{"Pods"}, names["table"])
		require.Len(t, names["row"], 8, "a header and seven pods")
		require.Len(t, names["columnheader"], 10)
		require.Contains(t, names["rowheader"], "default/orders")
		require.Len(t, names["status"], 1)
		require.Equal(t, []string{"imagefs.available, used", "memory.available, used", "nodefs.available, used", "nodefs.inodesFree, used", "pid.available, used"}, names["meter"])
		require.Equal(t, []string{"Filter "}, names["searchbox"])
		require.Subset(t, names["heading"], []string{"edge-07", "Pods", "Events"})
		for _, role := range []string{"button", "link", "searchbox", "DisclosureTriangle"} {
			require.NotContains(t, names[role], "", "element with role %s and without a name", role)
		}
	}
	require.Equal(t, "7.0 GiB of 100 GiB free, below a threshold", eval[string](b, `document.querySelector(".meter").getAttribute("aria-valuetext")`))
	require.Equal(t, "93", eval[string](b, `document.querySelector(".meter").getAttribute("aria-valuenow")`))
	require.Contains(t, eval[string](b, `document.getElementById("managers").textContent`), "runtime is healthy")
}

// TestE2EPage_OfTheRealAgent opens the page of the real agent, with its embedded runtime and
// sample pods.
func TestE2EPage_OfTheRealAgent(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(dir, "minimal-agent"), "--listen", "127.0.0.1:0", "--node-name", "node-1")
	var said lockedBuffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait(), "%s", &said)
	})
	var address string
	until(t, "the agent listens", func() error {
		m := regexp.MustCompile(`listening on (http://\S+)`).FindStringSubmatch(said.String())
		if m == nil {
			return os.ErrNotExist
		}
		address = m[1]
		return nil
	})
	b := openTab(t, 1400, 1000)
	b.open(address)
	b.wait(`document.querySelector("h1").innerText === "node-1"`)
	b.wait(`row("web-node-1")?.innerText.startsWith("Running")`)
	b.wait(`row("flaky-node-1")?.querySelector("[data-t=restarts]").innerText > 0`)
	eval[any](b, `row("web-node-1").querySelector(".open").click()`)
	b.wait(`row("web-node-1").querySelector("[data-t=evictionOrder]").innerText !== ""`)
	eval[any](b, `row("web-node-1").querySelector("details[data-t=log]").open = true`)
	b.wait(`row("web-node-1").querySelector("[data-t=lines]").innerText.length > 1`)
	b.wait(`document.querySelectorAll("#events li").length > 3`)
	b.look("agent")
	require.Empty(t, b.complaints())
}

// lockedBuffer is a buffer that may be written and read concurrently.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
