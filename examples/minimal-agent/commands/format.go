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

// colour is the SGR parameter of a line on a terminal.
type colour string

const (
	plain  colour = ""
	bold   colour = "1"
	red    colour = "31"
	yellow colour = "33"
	dim    colour = "2"
)

// style contains the colours and the width of printed lines.
type style struct {
	colours bool
	width   int // maximum length of a line; 0 means no limit
}

// style returns the style of lists, whose lines are not cut.
func (p Program) style() style {
	_, _, terminal := p.terminal()
	return style{colours: terminal && p.getenv("NO_COLOR") == ""}
}

// screenStyle returns the style of texts that must fit on the terminal.
func (p Program) screenStyle() style {
	l := p.style()
	l.width, _, _ = p.terminal()
	return l
}

// line returns text as one line, cut to the width and coloured.
func (l style) line(c colour, text string) string {
	text = strings.TrimRight(printable.Line(text), " ")
	if runes := []rune(text); l.width > 0 && len(runes) > l.width {
		text = strings.TrimRight(string(runes[:l.width]), " ")
	}
	return l.paint(c, text)
}

func (l style) paint(c colour, text string) string {
	if !l.colours || c == plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// table aligns columns. It colours whole lines, so that escape sequences do not affect the widths.
type table struct {
	out     io.Writer
	style   style
	text    bytes.Buffer
	tabs    *tabwriter.Writer
	colours []colour
}

func newTable(out io.Writer, l style) *table {
	t := &table{out: out, style: l}
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
	_ = t.tabs.Flush() // writes to memory, and can't fail
	lines := strings.Split(strings.TrimSuffix(t.text.String(), "\n"), "\n")
	for i, c := range t.colours {
		fmt.Fprintln(t.out, t.style.line(c, lines[i]))
	}
	t.text.Reset()
	t.colours = nil
}

// age returns the time since t in the format of kubectl, or - if t is nil or zero.
func age(now time.Time, t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(*t))
}

// amount returns a value of an eviction signal as short text. The value is in bytes or a count,
// depending on the signal.
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

// cores returns CPU usage in millicores.
func cores(n float64) string { return fmt.Sprintf("%.0fm", n*1000) }

// bar returns a bar that shows how much of a signal's capacity is used, and its eviction
// thresholds: [#####-----|--]. The bar of a signal without a measurement or a capacity has question
// marks.
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

// pressure returns the colour of a signal: red if a threshold is crossed, yellow if less than 1.5
// times a threshold is available.
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

// plural returns a number and a noun.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
