package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

//go:embed samples/*.yaml
var samples embed.FS

// manifests has the sources of pods: a folder and optionally a URL.
type manifests struct {
	dir       string
	isSamples bool // the folder has the sample manifests and belongs to the program
	folder    *podsource.Directory
	url       *podsource.HTTP  // nil without --manifest-url
	address   string           // the URL, without query and password
	objects   *podsource.Store // the ConfigMaps and Secrets of the folder
}

func newManifests(o settings.Settings, rootDir string, log *slog.Logger) (m manifests, err error) {
	m = manifests{dir: o.StaticPodPath, objects: podsource.NewStore()}
	if m.dir == "" {
		m.dir, m.isSamples = filepath.Join(rootDir, "samples"), true
	}
	m.folder, err = podsource.NewDirectory(podsource.DirectoryConfig{
		Path: m.dir, NodeName: o.NodeName, Owner: o.AgentName, Store: m.objects, Period: o.FolderPeriod(), Logger: log,
	})
	if err != nil || o.StaticPodURL == "" {
		return m, err
	}
	m.address = withoutSecrets(o.StaticPodURL)
	m.url, err = podsource.NewHTTP(podsource.HTTPConfig{
		URL: o.StaticPodURL, Header: o.StaticPodURLHeader, Period: o.HTTPCheckFrequency.Duration,
		NodeName: o.NodeName, Owner: o.AgentName, Logger: log,
	})
	return m, err
}

// sources returns the folder and the URL as sources of an agent.
func (m manifests) sources() []agent.Source {
	sources := []agent.Source{{Name: podspec.SourceFile, Run: m.runFolder}}
	if m.url != nil {
		sources = append(sources, agent.Source{Name: podspec.SourceHTTP, Run: m.url.Run})
	}
	return sources
}

// runFolder runs the folder's source. If the program uses the sample manifests, runFolder
// writes them first.
func (m manifests) runFolder(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	if m.isSamples {
		if err := writeSamples(m.dir); err != nil {
			return err
		}
	}
	return m.folder.Run(ctx, set)
}

// problems returns the errors in manifests.
func (m manifests) problems() []podsource.Problem {
	problems := m.folder.Problems()
	if m.url != nil {
		problems = append(problems, m.url.Problems()...)
	}
	return problems
}

// writeSamples deletes the folder dir and creates it with the sample manifests.
func writeSamples(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("write the sample manifests: %w", err)
	}
	files, err := fs.Sub(samples, "samples")
	if err != nil {
		return fmt.Errorf("write the sample manifests: %w", err)
	}
	return errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.CopyFS(dir, files))
}

// places returns the folder and the URL as text.
func (m manifests) places() []string {
	if m.url == nil {
		return []string{m.dir}
	}
	return []string{m.dir, m.address}
}
