package main

import (
	"context"
	"path/filepath"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/podmanager/podsource"
	"github.com/kubeparts/kubeparts/status"
)

func (a *agent) newSource() (err error) {
	dir := a.opts.StaticPodPath
	if dir == "" {
		dir = filepath.Join(a.node.rootDir, "samples")
		if err := writeSamples(dir); err != nil {
			return err
		}
	}
	a.manifestDir = dir
	sources := []string{podspec.SourceFile}
	if a.opts.StaticPodURL != "" {
		sources = append(sources, podspec.SourceHTTP)
	}
	a.merge, err = podmanager.NewMerge(podmanager.MergeConfig{
		Sources: sources,
		Handler: func(ctx context.Context, c podmanager.Change) { a.desired(ctx, c.Pods) },
		Logger:  a.log,
	})
	if err != nil {
		return err
	}
	a.source, err = podsource.NewDirectory(podsource.DirectoryConfig{
		Path:     dir,
		NodeName: a.opts.nodeName,
		Owner:    a.opts.agentName,
		Store:    a.objects,
		Period:   a.opts.folderPeriod(),
		Logger:   a.log,
	})
	if err != nil || a.opts.StaticPodURL == "" {
		return err
	}
	a.url, err = podsource.NewHTTP(podsource.HTTPConfig{
		URL:      a.opts.StaticPodURL,
		Header:   a.opts.StaticPodURLHeader,
		Period:   a.opts.HTTPCheckFrequency.Duration,
		NodeName: a.opts.nodeName,
		Owner:    a.opts.agentName,
		Logger:   a.log,
	})
	return err
}

func (a *agent) newPLEG() (err error) {
	a.pleg, err = pleg.New(pleg.Config{
		Runtime:       a.node.cri,
		Lister:        a.node.cri.Lister(),
		Events:        a.node.cri,
		Cache:         a.cache,
		Handler:       a.plegEvent,
		LabelSelector: a.ownLabels(),
		Logger:        a.log,
		Observer: a.node.metrics.PLEG(pleg.Observer{
			RelistEnd: func(_ pleg.Result, err error) { a.relisted(err) },
		}),
	})
	return err
}

func (a *agent) newRunner(ctx context.Context) (err error) {
	cfg := podrunner.Config{
		Sandboxes:     a.node.cri,
		Containers:    a.node.cri,
		Refresh:       a.refresh,
		LogRoot:       a.logRoot(),
		ContainerLogs: a.containerLogs(),
		Agent:         a.opts.agentName,
		Probes:        a.probes.results,
		Observer:      a.node.metrics.Runner(podrunner.Observer{Planned: a.planned}),
		Logger:        a.log,
	}
	if err := a.supply(ctx, &cfg); err != nil {
		return err
	}
	a.runner, err = podrunner.New(cfg)
	return err
}

func (a *agent) newWorkers() (err error) {
	a.workers, err = podworker.New(podworker.Config{
		Syncer:       syncer{a},
		Cache:        a.cache,
		AfterSync:    a.pleg.RequestRelist,
		ResyncPeriod: a.opts.policies.SyncPeriod,
		Observer:     a.node.metrics.Workers(podworker.Observer{}),
		Logger:       a.log,
	})
	return err
}

func (a *agent) newStatuses(ctx context.Context) (err error) {
	a.saved = status.NewSaved(a.store)
	if err := a.saved.Load(ctx); err != nil { // the others count
		a.log.ErrorContext(ctx, "what was last said of some pods is lost", "err", err)
	}
	a.statuses, err = status.New(status.Config{
		Logger:   a.log,
		Observer: a.node.metrics.Statuses(status.Observer{StatusChanged: a.console.changed}),
		Pod:      a.pods.GetPodByUID,
		Saved:    a.saidBefore,
	})
	if err != nil {
		return err
	}
	a.publish, err = status.NewPublisher(status.PublisherConfig{
		Statuses: a.statuses, Sink: a.saved, Logger: a.log, Observer: a.node.metrics.Publisher(status.PublisherObserver{}),
	})
	return err
}

// ownLabels are on everything that is this agent's. With --take-over all is.
func (a *agent) ownLabels() map[string]string {
	if a.opts.takeOver {
		return map[string]string{}
	}
	return map[string]string{crilabels.Agent: a.opts.agentName}
}
