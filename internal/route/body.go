package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"

	"github.com/conchsh/conch"
)

// ErrSlow is what reading gives when a client takes longer than it may.
var ErrSlow = errors.New("the request did not come within its time")

// Slow is ErrSlow as a client is told it.
func Slow() error {
	return conch.Errorf(conch.RequestTimeout, "%v", ErrSlow).Hint("a header has %v, a body %v; nothing was done", HeaderTime, BodyTime)
}

// Read gives a request's whole body.
func Read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return b, nil
	case errors.As(err, &large):
		return nil, conch.Errorf(conch.TooLarge, "the request is larger than %d bytes", limit)
	case errors.Is(err, ErrSlow), errors.Is(err, os.ErrDeadlineExceeded):
		return nil, Slow()
	}
	return nil, conch.Errorf(conch.InvalidRequest, "the request was cut off: %v", err)
}

// Decode reads a request's JSON body into v, which has the type that its route
// names. A word that v does not know is refused, since it would be ignored
// otherwise, and so is the lack of one that v needs.
func Decode(w http.ResponseWriter, r *http.Request, limit int64, optional bool, v any) error {
	b, err := Read(w, r, limit)
	if err != nil {
		return err
	}
	if len(b) == 0 && optional {
		return nil
	}
	if err := Strict(b, v); err != nil {
		return err
	}
	return Required(b, v)
}

// Strict decodes one JSON value, which is all of b, and leaves what is missing to
// Required.
func Strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return exact(b, reflect.TypeOf(v).Elem())
		}
		err = errors.New("more than one JSON value")
	}
	if err == io.EOF {
		err = errors.New("it is empty")
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		err = misfit(e)
	}
	return conch.Errorf(conch.InvalidRequest, "request body: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// misfit says in JSON's words what Go's say of a value of the wrong type.
func misfit(e *json.UnmarshalTypeError) error {
	want := "an object"
	switch e.Type.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Slice, reflect.Array:
		want = "a list"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		want = "a whole number within limits"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		want = "a whole number within limits, not below 0"
	case reflect.Float32, reflect.Float64:
		want = "a number"
	}
	what := e.Field
	if what == "" {
		what = "it"
	}
	return fmt.Errorf("%s is not %s (given: %.40s)", what, want, e.Value)
}

// Required refuses an object that lacks a field it must have. Fields that came
// are seldom empty, so it is only then that b is looked at again.
func Required(b []byte, v any) error {
	var given map[string]json.RawMessage
	for _, f := range Needed(reflect.TypeOf(v).Elem()) {
		if !reflect.ValueOf(v).Elem().FieldByIndex(f.Index).IsZero() {
			continue
		}
		if given == nil {
			if err := json.Unmarshal(b, &given); err != nil || given == nil {
				return conch.Errorf(conch.InvalidRequest, "request body: not an object")
			}
		}
		name := strings.Split(f.Tag.Get("json"), ",")[0]
		if raw, ok := given[name]; !ok || string(raw) == "null" {
			return conch.Errorf(conch.InvalidRequest, "request body: %s is missing", name)
		}
	}
	return nil
}

// Needed are the fields of a request's type that must be given: those that are
// not left out when empty.
func Needed(t reflect.Type) []reflect.StructField {
	var list []reflect.StructField
	for _, f := range reflect.VisibleFields(t) {
		if tag := f.Tag.Get("json"); tag != "" && tag != "-" && !strings.Contains(tag, ",omit") {
			list = append(list, f)
		}
	}
	return list
}
