package state

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
)

// MemoryStore is a [Store] in memory. Its values are lost when the process ends. Create it with
// [Memory].
type MemoryStore struct {
	mu     sync.Mutex
	values map[string][]byte
}

var _ Store = (*MemoryStore)(nil)

// Memory returns an empty store.
func Memory() *MemoryStore { return &MemoryStore{values: map[string][]byte{}} }

// Get returns the value of a key.
func (m *MemoryStore) Get(_ context.Context, key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, fmt.Errorf("state: get: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[key]
	if !ok {
		return nil, fmt.Errorf("state: get %s: %w", key, fs.ErrNotExist)
	}
	return slices.Clone(value), nil
}

// Put stores a value.
func (m *MemoryStore) Put(_ context.Context, key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("state: put: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.values {
		if strings.HasPrefix(other, key+"/") || strings.HasPrefix(key, other+"/") {
			return fmt.Errorf("state: put %s: %s has a value", key, other)
		}
	}
	m.values[key] = append([]byte{}, value...)
	return nil
}

// Delete deletes a value.
func (m *MemoryStore) Delete(_ context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("state: delete: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, key)
	return nil
}

// Keys returns the keys that start with prefix.
func (m *MemoryStore) Keys(_ context.Context, prefix string) (keys []string, err error) {
	if err := checkPrefix(prefix); err != nil {
		return nil, fmt.Errorf("state: keys: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.values {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}
