package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// store has the samples of all scrapes in memory. It implements [storage.Queryable].
type store struct {
	series map[string]*series // by the text of the labels
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newStore() *store { return &store{map[string]*series{}} }

// scraped adds a page that was scraped from a target at the given time. It adds the labels of the
// target, as Prometheus does.
func (s *store) scraped(page []byte, at time.Time, target map[string]string) error {
	p := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("parse %s: %w", target["metrics_path"], err)
		case entry != textparse.EntrySeries:
			continue
		}
		var l labels.Labels
		p.Labels(&l)
		b := labels.NewBuilder(l)
		for name, value := range target {
			b.Set(name, value)
		}
		_, timestamp, value := p.Series()
		if timestamp != nil {
			s.add(b.Labels(), *timestamp, value)
		} else {
			s.add(b.Labels(), at.UnixMilli(), value)
		}
	}
}

// add adds a sample, unless the series has a sample of the same or a later time.
func (s *store) add(l labels.Labels, milliseconds int64, value float64) {
	of := s.series[l.String()]
	if of == nil {
		of = &series{labels: l}
		s.series[l.String()] = of
	}
	if n := len(of.samples); n > 0 && of.samples[n-1].T() >= milliseconds {
		return
	}
	of.samples = append(of.samples, sample{milliseconds, value})
}

// has reports whether a metric has a series.
func (s *store) has(metric string) bool {
	for _, one := range s.series {
		if one.labels.Get(model.MetricNameLabel) == metric {
			return true
		}
	}
	return false
}

// Querier returns s. It ignores the range, because the engine does not use samples outside it.
func (s *store) Querier(int64, int64) (storage.Querier, error) { return s, nil }

// Select returns the series that match.
func (s *store) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var all []*series
	for _, one := range s.series {
		matches := func(m *labels.Matcher) bool { return m.Matches(one.labels.Get(m.Name)) }
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !matches(m) }) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b *series) int { return labels.Compare(a.labels, b.labels) })
	return &selection{all: all}
}

// LabelValues is not needed for queries.
func (*store) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// LabelNames is not needed for queries.
func (*store) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// Close does nothing.
func (*store) Close() error { return nil }

// selection is the result of a Select.
type selection struct {
	all  []*series
	next int
}

func (s *selection) Next() bool {
	s.next++
	return s.next <= len(s.all)
}

func (s *selection) At() storage.Series {
	one := s.all[s.next-1]
	return storage.NewListSeries(one.labels, one.samples)
}

func (*selection) Err() error                        { return nil }
func (*selection) Warnings() annotations.Annotations { return nil }

// sample is a value at a time in milliseconds.
type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                    { return s.t }
func (s sample) F() float64                  { return s.v }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }
