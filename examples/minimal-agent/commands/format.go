package commands

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// colour is how a line looks on a terminal.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	red    colour = "31"
	yellow colour = "33"
	dim    colour = "2"
)

// look is how lines may be.
type look struct {
	colours bool
	width   int // they are cut to; 0: not at all
}

// look is that of lists: as wide as they are.
func (p Program) look() look {
	_, _, terminal := p.terminal()
	return look{colours: terminal && p.getenv("NO_COLOR") == ""}
}

// screenLook is that of what is to fit on a screen.
func (p Program) screenLook() look {
	l := p.look()
	l.width, _, _ = p.terminal()
	return l
}

// line is text as one.
func (l look) line(c colour, text string) string {
	text = strings.TrimRight(printable.Line(text), " ")
	if runes := []rune(text); l.width > 0 && len(runes) > l.width {
		text = strings.TrimRight(string(runes[:l.width]), " ")
	}
	return l.paint(c, text)
}

func (l look) paint(c colour, text string) string {
	if !l.colours || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// table aligns columns and colours whole lines, which changes no width.
type table struct {
	out     io.Writer
	look    look
	text    bytes.Buffer
	tabs    *tabwriter.Writer
	colours []colour
}

func newTable(out io.Writer, l look) *table {
	t := &table{out: out, look: l}
	t.tabs = tabwriter.NewWriter(&t.text, 0, 8, 2, ' ', 0)
	return t
}

func (t *table) row(c colour, cells ...string) {
	for i, cell := range cells {
		cells[i] = printable.Line(cell)
	}
	fmt.Fprintln(t.tabs, strings.Join(cells, "\t"))
	t.colours = append(t.colours, c)
}

// flush prints the rows.
func (t *table) flush() {
	_ = t.tabs.Flush() // into memory
	lines := strings.Split(strings.TrimSuffix(t.text.String(), "\n"), "\n")
	for i, c := range t.colours {
		fmt.Fprintln(t.out, t.look.line(c, lines[i]))
	}
	t.text.Reset()
	t.colours = nil
}

// age is how long ago t was, as kubectl says it.
func age(now time.Time, t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(*t))
}

// amount is a figure of a signal in a few characters.
func amount(signal string, n int64) string {
	if strings.HasPrefix(signal, "pid.") || strings.HasSuffix(signal, "inodesFree") {
		return count(n)
	}
	return size(n)
}

func size(n int64) string {
	return scaled(float64(n), 1024, []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"})
}

func count(n int64) string {
	return scaled(float64(n), 1000, []string{"", "k", "M", "G", "T", "P", "E"})
}

func scaled(n, step float64, units []string) string {
	unit := 0
	for (n >= step || n <= -step) && unit < len(units)-1 {
		n, unit = n/step, unit+1
	}
	if unit == 0 || n >= 100 || n <= -100 {
		return fmt.Sprintf("%.0f%s", n, units[unit])
	}
	return fmt.Sprintf("%.1f%s", n, units[unit])
}

// cores is processor time in the kubelet's unit.
func cores(n float64) string { return fmt.Sprintf("%.0fm", n*1000) }

// bar shows how much of a signal is used, and where eviction begins:
// [#####-----|--].
func bar(s api.Signal, width int) string {
	if s.Capacity <= 0 || s.Time == nil {
		return "[" + strings.Repeat("?", width) + "]"
	}
	place := func(available int64) int {
		used := 1 - float64(available)/float64(s.Capacity)
		return min(max(int(used*float64(width)+0.5), 0), width)
	}
	cells := []byte(strings.Repeat("#", place(s.Available)) + strings.Repeat("-", width-place(s.Available)))
	for _, t := range s.Thresholds {
		cells[min(place(t.Value), width-1)] = '|'
	}
	return "[" + string(cells) + "]"
}

// pressure is the colour of a signal: red where a threshold is crossed, yellow where
// half as much more would be.
func pressure(s api.Signal) colour {
	c := plain
	for _, t := range s.Thresholds {
		switch {
		case t.Since != nil:
			return red
		case s.Time != nil && s.Available < t.Value+t.Value/2:
			c = yellow
		}
	}
	return c
}

// many is a number of things.
func many(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
