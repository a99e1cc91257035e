//go:build e2e && linux

package page_test

import (
	"testing"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
)

func TestE2EPageShots(t *testing.T) {
	a := newAgent(t)
	b := openTab(t, 1400, 1000)
	b.open(a.start(server.Access{}))
	b.wait(`document.querySelectorAll("#podTable tbody").length === 7`)
	b.media("prefers-color-scheme", "light")
	b.shoot("/tmp/w-page-shots/light.png", true)
	b.media("prefers-color-scheme", "dark")
	eval[any](b, `document.querySelector("#podTable .open").click(), document.querySelectorAll("#podTable .open")[1].click()`)
	b.wait(`document.querySelector("#podTable").innerText.includes("number 2 of 6")`)
	eval[any](b, `document.querySelector("#podTable .containers summary").click()`)
	b.wait(`document.querySelector("#podTable").innerText.includes("GET /healthz")`)
	b.shoot("/tmp/w-page-shots/dark.png", true)
	b.size(360, 740)
	b.shoot("/tmp/w-page-shots/phone.png", true)
	eval[any](b, `document.querySelectorAll(".open[aria-expanded=true]").forEach(e => e.click())`)
	b.shoot("/tmp/w-page-shots/phone2.png", true)
	t.Log(b.complaints())
}
