// What every script has besides ECMAScript. The comments of `portal`'s own functions are those of Python's stub.

declare class ToolError extends Error {
    code: string
    hint: string
    data: any
    blocks: Record<string, any>[]
}

/** A host's answer to `portal.fetch`, whatever its status. Its body may be read with `await` or without. */
declare class Response {
    readonly status: number
    readonly statusText: string
    readonly ok: boolean
    readonly url: string
    readonly headers: Headers
    text(): string
    json(): any
    bytes(): Uint8Array
    arrayBuffer(): ArrayBuffer
    raise_for_status(): this
}

interface Pairs extends Iterable<[string, string]> {
    get(name: string): string | null
    has(name: string): boolean
    keys(): IterableIterator<string>
    values(): IterableIterator<string>
    entries(): IterableIterator<[string, string]>
}
interface Headers extends Pairs {
    forEach(each: (value: string, name: string) => void): void
}

type BufferSource = ArrayBuffer | ArrayBufferView
type FoundFunction = {name: string, upstream: string, tool: string, signature: string, summary: string, stub?: string}
type Found = {functions: FoundFunction[], total: number, notices: string[], namespaces?: Record<string, any>[]}

interface Portal {
    emit(blocks: object | object[]): void
    blocks(result: any): Record<string, any>[]
    text(result: any): string
    fetch(url: string, options?: {method?: string, headers?: Record<string, string>, params?: any, json?: any,
        body?: string | BufferSource | URLSearchParams, timeout?: number, follow_redirects?: boolean, redirect?: string,
        signal?: any}): Promise<Response>
    search(query?: string, options?: {detail?: "brief"|"full", upstream?: string, limit?: number}): Promise<Found>
    describe(function_or_name: any): Promise<FoundFunction>
    resources(upstream?: any): Promise<Record<string, any[]>>
    read_resource(resource: string | object, upstream?: any): Promise<Record<string, any>[]>
    prompts(upstream?: any): Promise<Record<string, any[]>>
    get_prompt(prompt: string | object, args?: object, upstream?: any): Promise<Record<string, any>>
    sleep(time: number | {seconds?: number, minutes?: number, hours?: number, days?: number}): Promise<void>
    event(name: string, timeout?: number | {timeout?: number}): Promise<any>
    event_url(name: string): Promise<string>
    approve(question: string): Promise<boolean>
    recall(handle: string): Promise<any>
    search_text(handle: string, text: string, options?: {context?: number, limit?: number}):
        Promise<{position: number, text: string}[]>
    readonly readResource: Portal["read_resource"]
    readonly getPrompt: Portal["get_prompt"]
    readonly eventUrl: Portal["event_url"]
    readonly searchText: Portal["search_text"]
    readonly ToolError: typeof ToolError
    readonly Response: typeof Response
    readonly run: { readonly id: string }
    readonly env: Record<string, string>
}

declare const portal: Portal

/** The namespaces by name, also those whose name means something else in JavaScript. */
interface Namespaces {}
declare const tools: Namespaces

declare const console: Record<"log" | "info" | "warn" | "error" | "debug" | "trace" | "group" | "groupEnd" | "dir" | "table"
    | "assert" | "time" | "timeEnd" | "timeLog" | "count", (...values: any[]) => void>

type Callback = (...values: any[]) => void
declare function setTimeout(callback: Callback, ms?: number, ...values: any[]): number
declare function setInterval(callback: Callback, ms?: number, ...values: any[]): number
declare function setImmediate(callback: Callback, ...values: any[]): number
declare function clearTimeout(id?: number): void
declare function clearInterval(id?: number): void
declare function clearImmediate(id?: number): void
declare function queueMicrotask(callback: () => void): void

declare function structuredClone<T>(value: T): T
declare function atob(text: string): string
declare function btoa(text: string): string
declare class TextEncoder {
    readonly encoding: string
    encode(text?: string): Uint8Array
}
declare class TextDecoder {
    constructor(encoding?: string, options?: {fatal?: boolean, ignoreBOM?: boolean})
    readonly encoding: string
    decode(bytes?: Uint8Array | ArrayBuffer): string
}
interface URLSearchParams extends Pairs {
    append(name: string, value: any): void
    delete(name: string): void
    getAll(name: string): string[]
    set(name: string, value: any): void
}
declare const URLSearchParams: new (given?: any) => URLSearchParams
declare const crypto: { getRandomValues<T extends ArrayBufferView>(array: T): T, randomUUID(): string }
declare const performance: { readonly timeOrigin: number, now(): number }
