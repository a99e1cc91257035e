//go:build e2e && linux

package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// tab is a tab of Chromium, controlled over the DevTools protocol.
type tab struct {
	t       *testing.T
	conn    *websocket.Conn
	session string

	mu      sync.Mutex
	number  int
	waiting map[int]chan reply
	trouble []string // errors of the tab's console, content security policy and scripts
}

// reply is a response or an event.
type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// helpers are functions for expressions of tests. Function row returns the element of a pod.
const helpers = `function row(name) {
	return [...document.querySelectorAll("#podTable tbody")].find(n => n.querySelector(".open").innerText.endsWith("/" + name));
}`

// chromium returns the path of Chromium. It installs Chromium if necessary.
var chromium = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("../../../test/testbed/chromium.sh").Output()
	return strings.TrimSpace(string(out)), err
})

// openTab starts Chromium with an empty profile and a tab of the given size. It stops
// Chromium at the end of the test.
func openTab(t *testing.T, width, height int) *tab {
	t.Helper()
	browser, err := chromium()
	require.NoError(t, err)
	profile := t.TempDir()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), browser,
		"--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--disable-extensions", "--disable-breakpad",
		"--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
		"--remote-debugging-port=0", "--user-data-dir="+profile, "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the test can kill all processes of Chromium
	require.NoError(t, cmd.Start())
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }()
	t.Cleanup(func() {
		until(t, "Chromium exits", func() error {
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
				return errors.Join(errors.New("processes of it are left"), err)
			}
			return nil
		})
		<-exited
	})

	var address string
	until(t, "Chromium listens", func() error {
		data, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
		port, path, ok := strings.Cut(strings.TrimSpace(string(data)), "\n")
		if err != nil || !ok {
			return errors.Join(errors.New("no port yet"), err)
		}
		address = "ws://127.0.0.1:" + port + path
		return nil
	})
	conn, response, err := websocket.DefaultDialer.DialContext(t.Context(), address, nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	b := &tab{t: t, conn: conn, waiting: map[int]chan reply{}}
	read := make(chan struct{})
	go func() { defer close(read); b.read() }()
	t.Cleanup(func() { _ = conn.Close(); <-read })

	var target struct{ TargetID, SessionID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Accessibility", "Audits"} {
		b.do(domain+".enable", nil, nil)
	}
	b.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": helpers}, nil)
	b.do("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	b.size(width, height)
	return b
}

// read handles responses and events until the connection ends.
func (b *tab) read() {
	for {
		var r reply
		if err := b.conn.ReadJSON(&r); err != nil {
			return
		}
		b.mu.Lock()
		switch r.Method {
		case "":
			b.waiting[r.ID] <- r
			delete(b.waiting, r.ID)
		case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Audits.issueAdded":
			b.trouble = append(b.trouble, r.Method+" "+string(r.Params))
		}
		b.mu.Unlock()
	}
}

// do calls a method and stores its response in result.
func (b *tab) do(method string, params, result any) {
	b.t.Helper()
	message, answer := map[string]any{"method": method}, make(chan reply, 1)
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	b.mu.Lock()
	b.number++
	message["id"], b.waiting[b.number] = b.number, answer
	err := b.conn.WriteJSON(message)
	b.mu.Unlock()
	require.NoError(b.t, err, method)
	select {
	case r := <-answer:
		require.Nil(b.t, r.Error, method)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(r.Result, result), method)
		}
	case <-time.After(time.Minute):
		b.t.Fatalf("Chromium does not answer to %s", method)
	}
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	b.do("Runtime.evaluate", map[string]any{
		"expression": expression, "awaitPromise": true, "returnByValue": true,
	}, &answer)
	require.Nil(b.t, answer.ExceptionDetails, expression)
	if len(answer.Result.Value) > 0 {
		require.NoError(b.t, json.Unmarshal(answer.Result.Value, &value), expression)
	}
	return value
}

// wait waits until an expression is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	until(b.t, expression, func() error {
		if eval[bool](b, "!!("+expression+")") {
			return nil
		}
		return errors.New("it is not; the page reads:\n" + eval[string](b, "document.body?.innerText ?? String()"))
	})
}

// open opens a URL and waits for its document.
func (b *tab) open(url string) {
	b.t.Helper()
	b.do("Page.navigate", map[string]any{"url": url}, nil)
	b.wait(fmt.Sprintf("document.readyState === 'complete' && location.href.startsWith(%q)", url))
}

func (b *tab) size(width, height int) {
	b.t.Helper()
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
}

// media sets media features. features alternates names and values.
func (b *tab) media(features ...string) {
	b.t.Helper()
	var list []map[string]string
	for i := 0; i+1 < len(features); i += 2 {
		list = append(list, map[string]string{"name": features[i], "value": features[i+1]})
	}
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": list}, nil)
}

// press presses keys by name, one after the other.
func (b *tab) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		code := map[string]int{"Tab": 9, "Enter": 13, " ": 32, "Escape": 27}[key]
		down := map[string]any{"type": "keyDown", "key": key, "windowsVirtualKeyCode": code}
		switch key {
		case "Enter":
			down["text"] = "\r"
		case " ":
			down["text"], down["code"] = " ", "Space"
		}
		b.do("Input.dispatchKeyEvent", down, nil)
		b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "windowsVirtualKeyCode": code}, nil)
	}
}

// write types a text into the focused element.
func (b *tab) write(text string) {
	b.t.Helper()
	b.do("Input.insertText", map[string]any{"text": text}, nil)
}

// shoot writes a screenshot to a file, of the whole page if all is set.
func (b *tab) shoot(path string, all bool) {
	b.t.Helper()
	var shot struct{ Data []byte }
	b.do("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": all}, &shot)
	require.NoError(b.t, os.WriteFile(path, shot.Data, 0o600))
}

// complaints returns the errors of the browser since the last call of complaints.
func (b *tab) complaints() (trouble []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	trouble, b.trouble = b.trouble, nil
	return trouble
}

// until polls done every 50 ms for up to a minute.
func until(t *testing.T, what string, done func() error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var err error
	for range 20 * 60 {
		if err = done(); err == nil {
			return
		}
		<-tick.C
	}
	t.Fatalf("after a minute it was still not true that %s: %v", what, err)
}
