package commands

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

const (
	// Escape sequences of terminals.
	otherScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	oldScreen   = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

func (p Program) top() command {
	var conn connection
	once, sort, every := false, "cpu", 2*time.Second
	return command{
		name: "top", summary: "show the resource usage of pods; on a terminal, refresh it until interrupted",
		flags: func(f *flag.FlagSet) {
			conn.register(p, f)
			f.BoolVar(&once, "once", false, "print the usage once, without clearing the screen")
			f.DurationVar(&every, "interval", every, "time between two refreshes")
			f.StringVar(&sort, "sort", sort, "column to sort by: cpu, memory, disk, restarts or name")
		},
		run: func(ctx context.Context, args []string) error {
			if err := noArguments(args); err != nil {
				return err
			}
			order, ok := orders()[sort]
			if !ok {
				return usagef("--sort %q: must be cpu, memory, disk, restarts or name", sort)
			}
			if every < 100*time.Millisecond {
				return usagef("--interval %s: must be at least 100ms", every)
			}
			client, err := conn.open()
			if err != nil {
				return err
			}
			defer client.Close()
			text := func() (string, error) {
				status, err := client.Status(ctx)
				return p.topText(status, order), err
			}
			if _, _, terminal := p.terminal(); once || !terminal {
				lines, err := text()
				if err == nil {
					_, err = fmt.Fprint(p.Stdout, lines)
				}
				return err
			}
			return p.repaint(ctx, every, text)
		},
	}
}

// repaint prints the text that render returns. It calls render again after each interval until ctx
// is done. It returns an error only if the first call fails. If a later call
// fails, for example because the agent restarts, repaint prints the error and the previous text.
func (p Program) repaint(ctx context.Context, every time.Duration, render func() (string, error)) error {
	text, err := render()
	if err != nil {
		return err
	}
	fmt.Fprint(p.Stdout, otherScreen)
	defer fmt.Fprint(p.Stdout, oldScreen)
	ticker := p.Clock.NewTicker(every)
	defer ticker.Stop()
	for ctx.Err() == nil {
		shown := text
		if err != nil {
			shown = p.screenStyle().line(red, err.Error()) + "\n\n" + text
		}
		fmt.Fprint(p.Stdout, p.screen(shown))
		select {
		case <-ctx.Done():
		case <-ticker.C():
			var now string
			if now, err = render(); err == nil {
				text = now
			}
		}
	}
	return nil
}

// screen returns text cut to the height of the terminal, with the sequences that replace the
// previous screen.
func (p Program) screen(text string) string {
	_, height, _ := p.terminal()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if height > 1 && len(lines) >= height {
		lines = lines[:height-1]
	}
	return home + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearBelow
}

// topText returns the output of the command top. It cuts lines to the width of the terminal.
func (p Program) topText(s api.Status, order func(a, b api.Pod) int) string {
	var out bytes.Buffer
	l := p.screenStyle()
	head := fmt.Sprintf("%s  %s  up %s  pods %s", s.Now.Local().Format(time.TimeOnly), s.Node.Name, age(s.Now, &s.Agent.Started), podsLine(s.Pods))
	fmt.Fprintln(&out, l.line(bold, head))
	signals := newTable(&out, l)
	for _, signal := range s.Signals {
		if signal.Time != nil {
			signals.row(pressure(signal), signal.Name, bar(signal, barWidth), amount(signal.Name, signal.Available)+" of "+amount(signal.Name, signal.Capacity))
		}
	}
	signals.flush()
	out.WriteString("\n")
	t := newTable(&out, l)
	t.row(bold, "POD", "CPU", "MEMORY", "DISK", "RESTARTS", "STATUS")
	pods := slices.Clone(s.Pods)
	slices.SortStableFunc(pods, func(a, b api.Pod) int {
		return cmp.Or(order(a, b), cmp.Compare(fullName(a), fullName(b)))
	})
	for _, pod := range pods {
		cpu, memory := usage(pod.Usage)
		disk := "-"
		if pod.Usage != nil {
			disk = size(int64(pod.Usage.EphemeralBytes))
		}
		t.row(podColour(pod), fullName(pod), cpu, memory, disk, fmt.Sprint(pod.Restarts), pod.State)
	}
	t.flush()
	return out.String()
}

// orders returns the comparison functions by the value of --sort. All functions sort in
// descending order, except the function for the value name.
func orders() map[string]func(a, b api.Pod) int {
	by := func(figure func(api.Usage) float64) func(a, b api.Pod) int {
		value := func(p api.Pod) float64 {
			if p.Usage == nil {
				return -1
			}
			return figure(*p.Usage)
		}
		return func(a, b api.Pod) int { return cmp.Compare(value(b), value(a)) }
	}
	return map[string]func(a, b api.Pod) int{
		"cpu": by(func(u api.Usage) float64 {
			if u.CPUCores == nil {
				return -1
			}
			return *u.CPUCores
		}),
		"memory":   by(func(u api.Usage) float64 { return float64(u.MemoryBytes) }),
		"disk":     by(func(u api.Usage) float64 { return float64(u.EphemeralBytes) }),
		"restarts": func(a, b api.Pod) int { return cmp.Compare(b.Restarts, a.Restarts) },
		"name":     func(a, b api.Pod) int { return 0 },
	}
}
