package fakeyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/kubeparts/kubeparts/fakecri"
)

// Parse reads a document as the package comment shows it. The Config that it
// returns is valid, and the caller may change it; an empty document is the zero
// Config.
func Parse(data []byte) (fakecri.Config, error) {
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return fakecri.Config{}, fmt.Errorf("fakeyaml: %w", err)
	}
	tree := json.NewDecoder(bytes.NewReader(raw))
	tree.UseNumber()
	var doc any
	if err := tree.Decode(&doc); err != nil {
		return fakecri.Config{}, fmt.Errorf("fakeyaml: %w", err)
	}
	var cfg fakecri.Config
	var d decoder
	if doc != nil {
		config(&cfg)(&d, "", doc)
	}
	// What could not be read is wrong as it stands: no need to hear of it twice.
	if len(d.errs) == 0 {
		d.errs = append(d.errs, cfg.Validate())
	}
	if err := errors.Join(d.errs...); err != nil {
		return fakecri.Config{}, fmt.Errorf("fakeyaml: %w", err)
	}
	return cfg, nil
}

func config(c *fakecri.Config) reader {
	return object(map[string]reader{
		"images":   list(&c.Images, image),
		"registry": list(&c.Registry, image),
		"pullAny":  boolean(&c.PullAny),
		"programs": table(&c.Programs, program),
		"disk": object(map[string]reader{
			"capacityBytes": size(&c.Disk.CapacityBytes),
			"inodes":        size(&c.Disk.Inodes),
		}),
	})
}

func image(i *fakecri.Image) reader {
	return object(map[string]reader{
		"name":      text(&i.Name),
		"tags":      list(&i.Tags, text),
		"sizeBytes": size(&i.SizeBytes),
		"layers":    list(&i.Layers, layer),
		"user":      text(&i.User),
		"pinned":    boolean(&i.Pinned),
		"pull": object(map[string]reader{
			"delay":          duration(&i.Pull.Delay),
			"bytesPerSecond": size(&i.Pull.BytesPerSecond),
			"username":       text(&i.Pull.Username),
			"password":       text(&i.Pull.Password),
			"error":          text(&i.Pull.Error),
		}),
	})
}

func layer(l *fakecri.Layer) reader {
	return object(map[string]reader{"name": text(&l.Name), "sizeBytes": size(&l.SizeBytes)})
}

func program(p *fakecri.Program) reader {
	return object(map[string]reader{
		"runtime":      duration(&p.Runtime),
		"exitCode":     integer(&p.ExitCode),
		"oomKilled":    boolean(&p.OOMKilled),
		"crashes":      integer(&p.Crashes),
		"termDelay":    duration(&p.TermDelay),
		"termExitCode": pointer(&p.TermExitCode, integer[int32]),
		"ignoreTerm":   boolean(&p.IgnoreTerm),
		"healthyAfter": duration(&p.HealthyAfter),
		"ports":        list(&p.Ports, port),
		"cpuMilli":     size(&p.CPUMilli),
		"memory":       growth(&p.Memory),
		"disk":         growth(&p.Disk),
		"inodes":       growth(&p.Inodes),
		"startError":   text(&p.StartError),
		"log":          list(&p.Log, text),
		"logInterval":  duration(&p.LogInterval),
		"exec":         table(&p.Exec, exec),
	})
}

func port(p *fakecri.Port) reader {
	return object(map[string]reader{
		"number":   integer(&p.Number),
		"protocol": text(&p.Protocol),
		"paths":    table(&p.Paths, integer),
	})
}

func growth(g *fakecri.Growth) reader {
	return object(map[string]reader{
		"start": size(&g.Start), "perSecond": size(&g.PerSecond), "max": size(&g.Max),
	})
}

func exec(e *fakecri.Exec) reader {
	return object(map[string]reader{
		"runtime":  duration(&e.Runtime),
		"exitCode": integer(&e.ExitCode),
		"stdout":   text(&e.Stdout),
		"stderr":   text(&e.Stderr),
		"health":   boolean(&e.Health),
	})
}
