;; A connector for forebay:connector@0.2.0, written by hand. The numbers are where the component model puts the fields of the
;; contract's records.
(module
    (import "forebay:connector/log@0.2.0" "write" (func $log (param i32 i32 i32)))
    (import "forebay:connector/clock@0.2.0" "now" (func $now (result i64)))
    (memory (export "memory") 2)
    (global $free (mut i32) (i32.const 65536))
    (data (i32.const 1024) "records")
    (data (i32.const 1040) "POST")
    (data (i32.const 1056) "/records")
    (data (i32.const 1072) "sink")
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
        (local $at i32)
        global.get $free
        local.set $at
        global.get $free
        local.get 3
        i32.add
        i32.const 7
        i32.add
        i32.const -8
        i32.and
        global.set $free
        local.get $at)
    (func $text (param $at i32) (param $text i32) (param $length i32)
        (i32.store (local.get $at) (local.get $text))
        (i32.store offset=4 (local.get $at) (local.get $length)))
    (func $copy (param $at i32) (param $from i32)
        (call $text (local.get $at) (i32.load (local.get $from)) (i32.load offset=4 (local.get $from))))

    ;; The event's body is at 72. The result: what it is at 0, the plan or the failure from 8 on.
    (func (export "forebay:connector/flow@0.2.0#prepare") (param $call i32) (result i32) (local $first i32)
        (if (i32.eqz (i32.load offset=76 (local.get $call))) (then (return (i32.const 2048))))
        (local.set $first (i32.load8_u (i32.load offset=72 (local.get $call))))
        (if (i32.eq (local.get $first) (i32.const 33)) (then
            (i32.store8 (i32.const 2048) (i32.const 1))
            (i32.store8 offset=8 (i32.const 2048) (i32.const 1))
            (call $copy (i32.const 2060) (i32.add (local.get $call) (i32.const 72)))
            (i32.store8 offset=24 (i32.const 2048) (i32.const 1))
            (i64.store offset=32 (i32.const 2048) (i64.const 7000))
            (return (i32.const 2048))))
        (i32.store8 offset=8 (i32.const 2048) (i32.const 1))
        (call $copy (i32.const 2060) (i32.add (local.get $call) (i32.const 72)))
        (if (i32.eq (local.get $first) (i32.const 63)) (then
            (call $text (i32.const 2068) (i32.const 2112) (i32.const 1))
            (call $text (i32.const 2112) (i32.const 1024) (i32.const 7))
            (call $text (i32.const 2120) (i32.const 2128) (i32.const 1))
            (call $text (i32.const 2128)
                (i32.add (i32.load offset=72 (local.get $call)) (i32.const 1))
                (i32.sub (i32.load offset=76 (local.get $call)) (i32.const 1)))))
        (i32.const 2048))

    (func (export "forebay:connector/flow@0.2.0#encode-read") (param i32 i32) (param $keys i32) (param i32) (result i32)
        (call $text (i32.const 2056) (i32.const 1040) (i32.const 4))
        (call $text (i32.const 2064) (i32.const 1056) (i32.const 8))
        (call $copy (i32.const 2080) (local.get $keys))
        (i32.const 2048))

    (func (export "forebay:connector/flow@0.2.0#decode-read")
        (param i32 i32) (param $keys i32) (param i32 i32 i32 i32) (param $body i32) (param $length i32) (result i32)
        (call $text (i32.const 2056) (i32.const 2112) (i32.const 1))
        (call $copy (i32.const 2112) (local.get $keys))
        (call $text (i32.const 2120) (local.get $body) (local.get $length))
        (i32.const 2048))

    ;; The delivery key is at 28, the time at 48, content at 64, state at 84, readings at 92. The note is at 8, messages at
    ;; 20; the message itself is built at 2112.
    (func (export "forebay:connector/flow@0.2.0#run") (param $call i32) (result i32)
        (call $log (i32.load offset=64 (local.get $call)) (i32.load offset=68 (local.get $call)) (i32.const 1))
        (i32.store8 offset=8 (i32.const 2048) (i32.const 1))
        (call $copy (i32.const 2060) (i32.add (local.get $call) (i32.const 84)))
        (if (i32.load offset=96 (local.get $call)) (then
            (call $copy (i32.const 2060) (i32.add (i32.load offset=92 (local.get $call)) (i32.const 20)))))
        (call $text (i32.const 2068) (i32.const 2112) (i32.const 1))
        (call $text (i32.const 2112) (i32.const 1072) (i32.const 4))
        (call $copy (i32.const 2120) (i32.add (local.get $call) (i32.const 64)))
        (call $copy (i32.const 2128) (i32.add (local.get $call) (i32.const 72)))
        (i32.store8 (i32.const 2144) (i32.const 1))
        (call $copy (i32.const 2148) (i32.add (local.get $call) (i32.const 28)))
        (i64.store (i32.const 2168)
            (i64.add (i64.const 1500) (i64.sub (call $now) (i64.load offset=48 (local.get $call)))))
        (i32.const 2048))

    (func (export "forebay:connector/flow@0.2.0#apply")
        (param i32 i32 i32 i32 i32 i32) (param $name i32) (param $length i32) (param i32 i32 i64 i32) (result i32)
        (i32.store8 offset=8 (i32.const 2048) (i32.const 1))
        (call $text (i32.const 2060) (local.get $name) (local.get $length))
        (i32.const 2048)))
